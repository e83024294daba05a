package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/eventd/eventd/hack/release/checksums"
)

const (
	version    = "v1.2.3"
	commit     = "0123abcd"
	repository = "registry.example/team/eventd"
)

// made is a release of this source, for this machine, if it runs Linux, and the checkout
// of which it was made.
var made, checkout string

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "release-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			return 1
		}
		defer os.RemoveAll(dir)
		made, checkout = filepath.Join(dir, "dist"), filepath.Join(dir, "checkout")
		if err := errors.Join(copySource(checkout), fill(made), makeTestRelease(made, "-replace")); err != nil {
			fmt.Fprintln(os.Stderr, "release:", err)
			return 1
		}
		return m.Run()
	}())
}

// fill makes a folder with a file that no release has.
func fill(folder string) error {
	return errors.Join(os.MkdirAll(folder, 0o755), os.WriteFile(filepath.Join(folder, "mine"), []byte("mine"), 0o644))
}

// copySource has all that a release is made of, and a changelog with the version.
func copySource(folder string) error {
	root := filepath.Join("..", "..")
	for _, part := range []string{"cmd", "internal", "pkg", "deploy"} {
		if err := os.CopyFS(filepath.Join(folder, part), os.DirFS(filepath.Join(root, part))); err != nil {
			return err
		}
	}
	for _, part := range []string{"go.mod", "go.sum", "LICENSE", "CHANGELOG.md", "hack/build.sh", "hack/static.sh"} {
		content, err := os.ReadFile(filepath.Join(root, part))
		if err != nil {
			return err
		}
		if part == "CHANGELOG.md" {
			content = []byte(strings.Replace(string(content), "## Unreleased\n", "## Unreleased\n\n## "+version+"\n", 1))
		}
		file := filepath.Join(folder, part)
		if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o755), os.WriteFile(file, content, 0o755)); err != nil {
			return err
		}
	}
	return nil
}

func arguments(folder string, more ...string) []string {
	return append([]string{
		"all", "-source=" + checkout, "-o=" + folder, "-version=" + version, "-commit=" + commit, "-epoch=1795730400",
		"-platforms=linux/" + runtime.GOARCH, "-image-repository=" + repository,
	}, more...)
}

func makeTestRelease(folder string, more ...string) error {
	ctx, stop := testContext()
	defer stop()
	return run(ctx, arguments(folder, more...))
}

// named is the name of an archive, or of a bill, of the release.
func named(command, end string) string {
	return command + "_" + version + "_linux_" + runtime.GOARCH + end
}

func TestReleaseHasTheseFiles(t *testing.T) {
	t.Parallel()
	want := []string{
		"RELEASE_NOTES.md", "SHA256SUMS", "eventd-1.2.3.tgz", "eventd-apiservice-observe.yaml", "eventd-apiservice.yaml", "eventd-certificate.yaml",
		"eventd-flowcontrol.yaml", "eventd-monitoring.yaml", "eventd.yaml", "eventd_v1.2.3_image.tar",
		named("eventd", ".cdx.json"), named("eventd", ".tar.gz"), "krew/eventd.yaml",
		named("kubectl-eventd", ".cdx.json"), named("kubectl-eventd", ".tar.gz"),
	}
	var have []string
	err := fs.WalkDir(os.DirFS(made), ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			have = append(have, name)
		}
		return err
	})
	slices.Sort(want)
	slices.Sort(have)
	if diff := cmp.Diff(want, have); err != nil || diff != "" {
		t.Errorf("it has (-want +got)\n%s\n%v", diff, err)
	}
	left, err := os.ReadDir(filepath.Dir(made))
	if err != nil || len(left) != 2 {
		t.Errorf("beside it are %v (%v)", left, err)
	}
}

func TestChecksumsAreThoseOfAllFiles(t *testing.T) {
	t.Parallel()
	check := exec.CommandContext(t.Context(), "sha256sum", "--check", "--strict", checksums.File)
	check.Dir = made
	out, err := check.CombinedOutput()
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	if files := strings.Count(string(out), ": OK\n"); files != 14 {
		t.Errorf("%d files were checked", files)
	}
}

// A folder with something in it, a version that cannot be one, or a version without notes
// ends it before anything is built; what is there stays, even if it was to be replaced.
func TestReleaseThatCannotBeMade(t *testing.T) {
	t.Parallel()
	full := t.TempDir()
	if err := fill(full); err != nil {
		t.Fatal(err)
	}
	for want, args := range map[string][]string{
		"is not empty":                   arguments(full),
		"has no section \"## v1.2.4\"":   arguments(full, "-replace", "-version=v1.2.4"),
		"-image-repository must be set":  arguments(full, "-replace", "-image-repository="),
		"-image-repository: ":            arguments(full, "-replace", "-image-repository=Not A Repository"),
		"must have one with Linux":       arguments(t.TempDir(), "-platforms=darwin/arm64"),
		"one with Linux, for the image":  {"image", "-source=" + t.TempDir(), "-version=" + version, "-platforms=darwin/arm64"},
		"-image-repository: repository":  {"image", "-source=" + t.TempDir(), "-version=" + version, "-image-repository=Not A Repository"},
		"is not OS/ARCHITECTURE":         arguments(t.TempDir(), "-platforms=linux"),
		"first argument is image, push,": {"unknown"},
		"-commit must be set":            arguments(full, "-replace", "-commit="),
		"must be a whole number":         arguments(t.TempDir(), "-epoch=now"),
		"not defined: -unknown":          arguments(t.TempDir(), "-unknown"),
		`unexpected argument "v1.2.3"`:   arguments(t.TempDir(), "v1.2.3"),
		"REPOSITORY, such as":            {"push", "image.tar", ""},
	} {
		if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("without %q in one line the error is %v", want, err)
		}
	}
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3+dirty", "v01.2.3", "latest", "v1.2.3\nx"} {
		for _, args := range [][]string{
			arguments(full, "-replace", "-version="+version),
			{"chart", "-source=" + checkout, "-o=" + t.TempDir(), "-version=" + version},
			{"image", "-source=" + checkout, "-o=" + t.TempDir() + "/image.tar", "-version=" + version},
		} {
			if err := run(t.Context(), args); err == nil || !strings.Contains(err.Error(), "must be one such as") {
				t.Errorf("%s of %q: %v", args[0], version, err)
			}
		}
	}
	if left, err := os.ReadDir(full); err != nil || len(left) != 1 {
		t.Errorf("of its folder is left %v (%v)", left, err)
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
