package image

import (
	"archive/tar"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// archived is an archive with one file.
func archived(t *testing.T, name, content string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "image.tar")
	out, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	writer := tar.NewWriter(out)
	if err := writer.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(content))}); err != nil {
		t.Fatal(err)
	}
	if _, err := writer.Write([]byte(content)); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	return file
}

// spoiled is the archive of an image after a change of its layout.
func spoiled(t *testing.T, image string, spoil func(folder string) error) string {
	t.Helper()
	folder, file := t.TempDir(), filepath.Join(t.TempDir(), "image.tar")
	if err := errors.Join(unpack(image, folder), spoil(folder), pack(file, folder, created)); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestOpenRefusesWhatIsNoImage(t *testing.T) {
	t.Parallel()
	image, _ := write(t, release, binaries(t))
	contents := opened(t, image)
	for what, file := range map[string]string{
		"no index":                archived(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`),
		"an index of nothing":     archived(t, "index.json", `{"schemaVersion":2,"manifests":[]}`),
		"a missing image":         archived(t, "index.json", `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"annotations":{"org.opencontainers.image.ref.name":"v1.2.3"}}]}`),
		"no bills":                spoiled(t, image, func(folder string) error { return os.RemoveAll(filepath.Join(folder, billsFolder)) }),
		"a bill beside the image": spoiled(t, image, func(folder string) error { return layout.Path(folder).AppendImage(contents.Bills[0]) }),
		"no version": spoiled(t, image, func(folder string) error {
			return layout.Path(folder).ReplaceIndex(contents.Index, match.MediaTypes(string(types.OCIImageIndex)))
		}),
		"a file outside of it":   archived(t, "../outside", "x"),
		"no archive, but a text": "contents_test.go",
		"no file":                filepath.Join(t.TempDir(), "nothing"),
	} {
		parent := t.TempDir()
		folder := filepath.Join(parent, "layout")
		if err := os.Mkdir(folder, 0o755); err != nil {
			t.Fatal(err)
		}
		if contents, err := Open(file, folder); err == nil {
			t.Errorf("%s is %+v", what, contents)
		}
		if left, err := os.ReadDir(parent); err != nil || len(left) != 1 {
			t.Errorf("%s left %v outside (%v)", what, left, err)
		}
	}
}
