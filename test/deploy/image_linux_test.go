package deploy

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The image has only the binary: no loader, no library.
func TestBinaryOfTheImageNeedsNothingBesideIt(t *testing.T) {
	t.Parallel()
	file, err := elf.Open(binary)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	for _, program := range file.Progs {
		if program.Type == elf.PT_INTERP || program.Type == elf.PT_DYNAMIC {
			t.Errorf("it has a segment %v", program.Type)
		}
	}
}

// sources are the files and folders that the binary is made of.
var sources = []string{"go.mod", "go.sum", "hack/build.sh", "hack/static.sh", "cmd", "internal", "pkg"}

// TestMain has built it in this folder. Here it is built in another one, from nothing
// but its sources.
func TestBinaryOfTheImageIsTheSameWhereverItIsBuilt(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "somewhere", "else")
	for _, part := range sources {
		from, to := filepath.Join(repository, part), filepath.Join(elsewhere, part)
		if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), exec.Command("cp", "-R", from, to).Run()); err != nil {
			t.Fatal(err)
		}
	}
	second := filepath.Join(t.TempDir(), "eventd")
	if err := buildStatic(t.Context(), elsewhere, second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, binary), read(t, second)) {
		t.Error("two builds of the same source are not the same")
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestBinaryOfTheImageSaysWhichVersionItIs(t *testing.T) {
	t.Parallel()
	out, err := exec.CommandContext(t.Context(), binary, "--version").Output()
	if err != nil || string(out) != "eventd v0.0.0-test\n" {
		t.Errorf("it says %q (%v)", out, err)
	}
	out, err = exec.CommandContext(t.Context(), binary, "--version=raw").Output()
	if err != nil || !strings.Contains(string(out), `GitCommit:"0123abcd"`) {
		t.Errorf("of its commit it says %q (%v)", out, err)
	}
}
