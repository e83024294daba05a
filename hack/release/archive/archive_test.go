package archive

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

var modified = time.Date(2026, 11, 26, 22, 0, 0, 0, time.UTC)

// entry is a file in an archive.
type entry struct {
	Name, Content string
	Mode          os.FileMode
	Modified      time.Time
}

var want = []entry{{"program", "a program", 0o755, modified}, {"LICENSE", "a license", 0o644, modified}}

// packed is an archive of files that were made now, in a folder of their own.
func packed(t *testing.T, name string) (content []byte) {
	t.Helper()
	return packedAt(t, name, modified)
}

func packedAt(t *testing.T, name string, modified time.Time) (content []byte) {
	t.Helper()
	dir := t.TempDir()
	var files []File
	for _, entry := range want {
		file := File{Name: entry.Name, Path: filepath.Join(dir, "of-"+entry.Name), Mode: entry.Mode}
		if err := os.WriteFile(file.Path, []byte(entry.Content), 0o600); err != nil {
			t.Fatal(err)
		}
		files = append(files, file)
	}
	archive := filepath.Join(dir, name)
	if err := Write(archive, modified, files...); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

func TestTarHasTheFiles(t *testing.T) {
	t.Parallel()
	content, err := gzip.NewReader(bytes.NewReader(packed(t, "a.tar.gz")))
	if err != nil {
		t.Fatal(err)
	}
	var have []entry
	for archive := tar.NewReader(content); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(archive)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" {
			t.Errorf("%s belongs to %d:%d", header.Name, header.Uid, header.Gid)
		}
		have = append(have, entry{header.Name, string(content), header.FileInfo().Mode(), header.ModTime.UTC()})
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the archive has (-want +got)\n%s", diff)
	}
}

func TestZipHasTheFiles(t *testing.T) {
	t.Parallel()
	content := packed(t, "a.zip")
	archive, err := zip.NewReader(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	var have []entry
	for _, file := range archive.File {
		in, err := file.Open()
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(in)
		if err := errors.Join(err, in.Close()); err != nil {
			t.Fatal(err)
		}
		have = append(have, entry{file.Name, string(content), file.Mode(), file.Modified.UTC()})
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("the archive has (-want +got)\n%s", diff)
	}
}

func TestArchiveIsTheSameWhereverItIsPacked(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		if !bytes.Equal(packed(t, name), packed(t, name)) {
			t.Errorf("two of %s differ", name)
		}
		if !bytes.Equal(packed(t, name), packedAt(t, name, modified.In(time.FixedZone("elsewhere", 5*3600)))) {
			t.Errorf("in another time zone, %s differs", name)
		}
	}
}

func TestArchiveIsCompressed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := File{Name: "zeros", Path: filepath.Join(dir, "zeros"), Mode: 0o644}
	if err := os.WriteFile(file.Path, make([]byte, 1<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.tar.gz", "a.zip"} {
		archive := filepath.Join(dir, name)
		if err := Write(archive, modified, file); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(archive); err != nil || info.Size() > 1<<16 {
			t.Errorf("%s has %d bytes (%v)", name, info.Size(), err)
		}
	}
}

func TestArchiveOfAFileThatIsMissing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := Write(filepath.Join(dir, "a.zip"), modified, File{Name: "a", Path: filepath.Join(dir, "a")}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the error is %v", err)
	}
}
