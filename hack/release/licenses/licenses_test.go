package licenses

import (
	"bytes"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// write makes a folder with files.
func write(t *testing.T, files map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	for name, content := range files {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return folder
}

// program is one with two modules beside it, whose files the test changes. Of the second one, it imports
// a package below another.
func program(t *testing.T, change map[string]string) Program {
	t.Helper()
	files := map[string]string{
		"go.mod": "module example.com/program\ngo 1.26\n" +
			"require (\nexample.com/one v1.0.0\nexample.com/two v1.0.0\nexample.com/unused v1.0.0\n)\n" +
			"replace (\nexample.com/one => ./one\nexample.com/two => ./two\nexample.com/unused => ./unused\n)\n",
		"LICENSE":  "of the program",
		"main.go":  "package main\nimport (_ \"example.com/one\"; _ \"example.com/two/a/b\")\nfunc main() {}\n",
		"other.go": "//go:build windows\n\npackage main\nimport _ \"example.com/two/c\"\n",

		"one/go.mod":        "module example.com/one\n",
		"one/one.go":        "package one\n",
		"one/LICENSE":       "license A\n",
		"one/NOTICE.txt":    "notice of one\n",
		"one/other/LICENSE": "of a package that is not imported",
		"one/license.go":    "package one\n",

		"two/go.mod":      "module example.com/two\n",
		"two/LICENCE.md":  "\nlicense A\n",
		"two/a/COPYING":   "copied into a",
		"two/a/b/b.go":    "package b\n",
		"two/c/c.go":      "package c\n",
		"two/c/PATENTS":   "patents of c",
		"two/licensed.md": "no license",

		"unused/go.mod":    "module example.com/unused\n",
		"unused/unused.go": "package unused\n",
		"unused/LICENSE":   "of a module that is not imported",
	}
	for name, content := range change {
		if files[name] = content; content == "" {
			delete(files, name)
		}
	}
	return Program{Folder: write(t, files), Package: ".", OS: "linux", Arch: runtime.GOARCH}
}

func of(t *testing.T, p Program) string {
	t.Helper()
	text, err := Of(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestLicensesAreThoseOfTheCompiledPackages(t *testing.T) {
	t.Parallel()
	p := program(t, nil)
	text := of(t, p)
	for _, want := range []string{
		"\nexample.com/one v1.0.0, LICENSE\nexample.com/two v1.0.0, LICENCE.md\n\nlicense A\n", // once
		"\nexample.com/one v1.0.0, NOTICE.txt\n\nnotice of one\n",
		"\nexample.com/two v1.0.0, a/COPYING\n\ncopied into a\n",
		", LICENSE\n\nCopyright 2009 The Go Authors.",
	} {
		if strings.Count(text, want) != 1 {
			t.Errorf("it has not %q once:\n%s", want, text)
		}
	}
	for _, other := range []string{"of the program", "not imported", "patents of c", "no license", "package one"} {
		if strings.Contains(text, other) {
			t.Errorf("it has %q", other)
		}
	}
	if text != of(t, p) {
		t.Error("it differs from time to time")
	}
	p.OS = "windows"
	if !strings.Contains(of(t, p), "\nexample.com/two v1.0.0, c/PATENTS\n\npatents of c\n") {
		t.Error("it is not that of the platform")
	}
}

func TestModuleWithoutALicenseIsRefused(t *testing.T) {
	t.Parallel()
	for want, p := range map[string]Program{
		"example.com/two v1.0.0 has no file with a license": program(t, map[string]string{"two/LICENCE.md": "", "two/a/COPYING": ""}),
		"go list": program(t, map[string]string{"main.go": "package main\nimport _ \"example.com/three\"\n"}),
	} {
		if text, err := Of(t.Context(), p); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v, %.100s", want, err, bytes.TrimSpace(text))
		}
	}
}
