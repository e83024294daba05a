package main

import (
	"bytes"
	"os"
	"strings"
	"testing"
)

// The page shows what this command prints for the flags that it names.
func TestPageIsWhatIsPrinted(t *testing.T) {
	page, err := os.ReadFile("../../docs/sizing.md")
	if err != nil {
		t.Fatal(err)
	}
	shown := 0
	for line := range strings.Lines(string(page)) {
		_, flags, ok := strings.Cut(line, "    go run ./hack/sizing")
		if !ok {
			continue
		}
		shown++
		var made bytes.Buffer
		if err := run(&made, strings.Fields(flags)); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(page), made.String()) {
			t.Errorf("docs/sizing.md does not have what go run ./hack/sizing%s prints:\n%s", strings.TrimSpace(flags), &made)
		}
	}
	if shown == 0 {
		t.Error("the page shows nothing")
	}
}

func TestWrongFlagIsAnError(t *testing.T) {
	if err := run(new(bytes.Buffer), []string{"--max-pending-bytes=much"}); err == nil {
		t.Error("no error")
	}
}
