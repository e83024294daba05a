package app

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// resident returns the resident size of mapped files in kB.
func resident(t *testing.T) (kilobytes int) {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if _, err := fmt.Sscanf(line, "RssFile: %d kB", &kilobytes); err == nil {
			return kilobytes
		}
	}
	t.Fatalf("no RssFile in\n%s", status)
	return 0
}

func TestStartupMemoryIsReleased(t *testing.T) {
	before := resident(t)
	if err := releaseStartupMemory(); err != nil {
		t.Fatal(err)
	}
	if after := resident(t); after > before/2 {
		t.Errorf("%d kB were resident before, %d kB after", before, after)
	}
}
