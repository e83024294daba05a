package deploy

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"testing"
)

// There is nothing in the image but the binary: no loader, no library.
func TestBinaryOfTheImageNeedsNothingBesideIt(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("what was built for this machine is not for an image")
	}
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

// TestMain has built it in this folder. It is built again in another one, of
// what the Dockerfile copies.
func TestBinaryOfTheImageIsTheSameWhereverItIsBuilt(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "somewhere", "else")
	for _, part := range []string{"cmd", "internal", "pkg"} {
		if err := os.CopyFS(filepath.Join(elsewhere, part), os.DirFS(filepath.Join(repository, part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"go.mod", "go.sum", "hack/build.sh", "hack/static.sh"} {
		copyFile(t, filepath.Join(repository, part), filepath.Join(elsewhere, part))
	}
	second := filepath.Join(t.TempDir(), "eventd")
	if err := buildStatic(t.Context(), elsewhere, second); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(read(t, binary), read(t, second)) {
		t.Error("two builds of the same source are not the same")
	}
}

func copyFile(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, read(t, from), 0o755); err != nil {
		t.Fatal(err)
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
}
