package image

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// program is a small one that has a module in it, as the binary of a test does not.
var program string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "image-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "image:", err)
			return 1
		}
		defer os.RemoveAll(dir)
		program = filepath.Join(dir, "program")
		if out, err := exec.Command("go", "build", "-ldflags=-s -w", "-o", program, "../testdata/program").CombinedOutput(); err != nil {
			fmt.Fprintf(os.Stderr, "image: %v: %s\n", err, out)
			return 1
		}
		return m.Run()
	}())
}
