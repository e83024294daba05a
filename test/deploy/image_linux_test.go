package deploy

import (
	"bytes"
	"debug/elf"
	"errors"
	"go/version"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
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

// TestMain has built it in this folder. Here it is built in another one from the files
// that the Dockerfile copies.
func TestBinaryOfTheImageIsTheSameWhereverItIsBuilt(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "somewhere", "else")
	for _, part := range copiedIntoTheImage(t) {
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

// copiedIntoTheImage are the files and folders that the Dockerfile copies and
// .dockerignore must allow.
func copiedIntoTheImage(t *testing.T) (parts []string) {
	t.Helper()
	through := strings.Fields(string(read(t, filepath.Join(repository, ".dockerignore"))))
	for line := range strings.Lines(string(read(t, filepath.Join(repository, "Dockerfile")))) {
		words := strings.Fields(line)
		if len(words) < 3 || words[0] != "COPY" || strings.HasPrefix(words[1], "--") {
			continue
		}
		for _, part := range words[1 : len(words)-1] {
			if !slices.Contains(through, "!"+part) {
				t.Errorf(".dockerignore keeps %s from the Dockerfile", part)
			}
			parts = append(parts, part)
		}
	}
	return parts
}

// The Dockerfile has one patch version of Go, which satisfies go.mod.
func TestImageIsBuiltByAGoOfTheModule(t *testing.T) {
	t.Parallel()
	asked := regexp.MustCompile(`(?m)^ARG GO_VERSION=(\d+\.\d+\.\d+)$`).FindSubmatch(read(t, filepath.Join(repository, "Dockerfile")))
	wanted := regexp.MustCompile(`(?m)^go (\d+\.\d+\.\d+)$`).FindSubmatch(read(t, filepath.Join(repository, "go.mod")))
	if asked == nil || wanted == nil {
		t.Fatalf("the Dockerfile asks for %q, and go.mod for %q", asked, wanted)
	}
	image, least := "go"+string(asked[1]), "go"+string(wanted[1])
	if version.Lang(image) != version.Lang(least) || version.Compare(image, least) < 0 {
		t.Errorf("the Dockerfile asks for %s, and go.mod for %s", image, least)
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
