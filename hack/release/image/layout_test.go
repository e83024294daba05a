package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// The entries have the times and modes of the release, whatever the files here have.
func TestFileHasNothingOfThisMachine(t *testing.T) {
	t.Parallel()
	file, _ := write(t, release, binaries(t))
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var names []string
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		mode := int64(0o644)
		if header.Typeflag == tar.TypeDir {
			mode = 0o755
		}
		if header.Mode != mode || header.Uid != 0 || header.Gid != 0 || header.Uname != "" || !header.ModTime.Equal(created) ||
			strings.HasSuffix(header.Name, "/") != (header.Typeflag == tar.TypeDir) {
			t.Errorf("an entry is %+v", header)
		}
	}
	// Each folder is there before its files.
	for _, name := range []string{"blobs/", "blobs/sha256/", "index.json", "oci-layout"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %q", name, names)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the names are not in order: %q", names)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("beside the image are %v (%v)", left, err)
	}
}
