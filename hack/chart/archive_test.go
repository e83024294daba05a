package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const chart = "../../deploy/chart"

// unpacked returns the files of an archive, which name nothing of this machine.
func unpacked(t *testing.T, content []byte) map[string]string {
	t.Helper()
	compressed, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	if !compressed.ModTime.IsZero() || compressed.Name != "" {
		t.Errorf("the archive says %v", compressed.Header)
	}
	packed := tar.NewReader(compressed)
	files := map[string]string{}
	for {
		header, err := packed.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || header.Mode != 0o644 || header.ModTime.Unix() != 0 || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s has %+v", header.Name, header)
		}
		file, err := io.ReadAll(packed)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(file)
	}
}

func TestArchiveHasTheFilesOfTheChartAndTheVersion(t *testing.T) {
	content, err := archive(chart, release{version: "v1.2.3-rc.1"})
	if err != nil {
		t.Fatal(err)
	}
	files := unpacked(t, content)
	for file, want := range map[string]string{
		"eventd/values.yaml":            chart + "/values.yaml",
		"eventd/values.schema.json":     chart + "/values.schema.json",
		"eventd/templates/NOTES.txt":    chart + "/templates/NOTES.txt",
		"eventd/files/dashboard.json":   "../../deploy/monitoring/dashboard.json", // not a link
		"eventd/templates/service.yaml": chart + "/templates/service.yaml",
	} {
		content, err := os.ReadFile(want)
		if err != nil {
			t.Fatal(err)
		}
		if files[file] != string(content) {
			t.Errorf("%s is not %s", file, want)
		}
	}
	about := files["eventd/Chart.yaml"]
	if !strings.Contains(about, "\nversion: 1.2.3-rc.1\n") || !strings.Contains(about, "\nappVersion: v1.2.3-rc.1\n") {
		t.Errorf("Chart.yaml is\n%s", about)
	}
}

func TestArchiveOfAReleaseNamesItsImage(t *testing.T) {
	const repository, digest = "registry.example/team/eventd", "sha256:0123"
	content, err := archive(chart, release{version: "v1.2.3", repository: repository, digest: digest})
	if err != nil {
		t.Fatal(err)
	}
	values := unpacked(t, content)["eventd/values.yaml"]
	if !strings.Contains(values, "\n  repository: "+repository+"\n") || !strings.Contains(values, "\n  digest: "+digest+"\n") {
		t.Errorf("the values are\n%s", values)
	}
}

// From another copy, which somebody else has checked out at another time with other modes.
func TestArchiveHasTheSameBytesWhereverItIsMade(t *testing.T) {
	elsewhere := filepath.Join(t.TempDir(), "chart")
	if err := filepath.WalkDir(chart, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, _ := filepath.Rel(chart, file)
		if entry.IsDir() {
			return os.MkdirAll(filepath.Join(elsewhere, within), 0o700)
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(elsewhere, within), content, 0o600); err != nil {
			return err
		}
		day := time.Date(2001, 2, 3, 4, 5, 6, 0, time.Local)
		return os.Chtimes(filepath.Join(elsewhere, within), day, day)
	}); err != nil {
		t.Fatal(err)
	}
	var archives [2][]byte
	for i, folder := range []string{chart, elsewhere} {
		file, err := pack(folder, release{version: "v1.2.3"}, filepath.Join(t.TempDir(), "dist"))
		if err != nil {
			t.Fatal(err)
		}
		if filepath.Base(file) != "eventd-1.2.3.tgz" {
			t.Errorf("the archive is %s", file)
		}
		if archives[i], err = os.ReadFile(file); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(archives[0], archives[1]) {
		t.Error("two archives of one chart differ")
	}
}

func TestWhatIsNoVersionIsRefused(t *testing.T) {
	for _, version := range []string{"", "1.2.3", "v1.2", "v1.2.3+dirty", "v01.2.3", "latest", "v1.2.3\nx"} {
		if _, err := archive(chart, release{version: version}); err == nil {
			t.Errorf("%q is taken for a version", version)
		}
	}
	for _, content := range []string{"version: 1.0.0\n", "version: 1\nversion: 2\nappVersion: v1\n"} {
		if _, err := stamp([]byte(content), release{version: "v1.2.3"}.lines("Chart.yaml")); err == nil {
			t.Errorf("stamped %q", content)
		}
	}
}
