package chart

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

const folder = "../../../deploy/chart"

var created = time.Date(2026, 11, 26, 22, 0, 0, 0, time.UTC)

// packed is the archive of the chart, which is named by its version.
func packed(t *testing.T, folder string, r Release) []byte {
	t.Helper()
	r.Created = created
	file, err := Pack(folder, r, filepath.Join(t.TempDir(), "dist"))
	if err != nil {
		t.Fatal(err)
	}
	if want := "eventd-" + strings.TrimPrefix(r.Version, "v") + ".tgz"; filepath.Base(file) != want {
		t.Errorf("the archive is %s, not %s", file, want)
	}
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

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
	archive := tar.NewReader(compressed)
	files := map[string]string{}
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Typeflag != tar.TypeReg || header.Mode != 0o644 || !header.ModTime.Equal(created) || header.Uid != 0 || header.Uname != "" {
			t.Errorf("%s has %+v", header.Name, header)
		}
		file, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		files[header.Name] = string(file)
	}
}

func TestArchiveHasTheFilesOfTheChartAndTheVersion(t *testing.T) {
	t.Parallel()
	files := unpacked(t, packed(t, folder, Release{Version: "v1.2.3-rc.1"}))
	for file, want := range map[string]string{
		"eventd/values.yaml":           folder + "/values.yaml",
		"eventd/values.schema.json":    folder + "/values.schema.json",
		"eventd/templates/NOTES.txt":   folder + "/templates/NOTES.txt",
		"eventd/files/dashboard.json":  "../../../deploy/monitoring/dashboard.json", // not a link
		"eventd/templates/intake.yaml": folder + "/templates/intake.yaml",
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
	t.Parallel()
	const repository, digest = "registry.example/team/eventd", "sha256:0123"
	values := unpacked(t, packed(t, folder, Release{Version: "v1.2.3", Repository: repository, Digest: digest}))["eventd/values.yaml"]
	if !strings.Contains(values, "\n  repository: "+repository+"\n") || !strings.Contains(values, "\n  digest: "+digest+"\n") {
		t.Errorf("the values are\n%s", values)
	}
}

// The values would have the other half of another image.
func TestHalfOfAnImageIsRefused(t *testing.T) {
	t.Parallel()
	for _, r := range []Release{{Repository: "registry.example/eventd"}, {Digest: "sha256:0123"}} {
		r.Version = "v1.2.3"
		if file, err := Pack(folder, r, t.TempDir()); err == nil {
			t.Errorf("packed %s of %+v", file, r)
		}
	}
}

// From another copy, which somebody else has checked out at another time with other modes.
func TestArchiveHasTheSameBytesWhereverItIsMade(t *testing.T) {
	t.Parallel()
	elsewhere := filepath.Join(t.TempDir(), "chart")
	if err := filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		within, _ := filepath.Rel(folder, file)
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
	if !bytes.Equal(packed(t, folder, Release{Version: "v1.2.3"}), packed(t, elsewhere, Release{Version: "v1.2.3"})) {
		t.Error("two archives of one chart differ")
	}
}

func TestLineThatIsNotThereOnceIsRefused(t *testing.T) {
	t.Parallel()
	for _, content := range []string{"version: 1.0.0\n", "version: 1\nversion: 2\nappVersion: v1\n"} {
		elsewhere := t.TempDir()
		if err := os.WriteFile(filepath.Join(elsewhere, "Chart.yaml"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := Pack(elsewhere, Release{Version: "v1.2.3"}, t.TempDir()); err == nil {
			t.Errorf("packed a chart with %q", content)
		}
	}
}
