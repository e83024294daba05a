package image

import (
	"archive/tar"
	"os"
	"path/filepath"
	"testing"
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

func TestOpenRefusesWhatIsNoImage(t *testing.T) {
	t.Parallel()
	for what, file := range map[string]string{
		"no index":               archived(t, "oci-layout", `{"imageLayoutVersion":"1.0.0"}`),
		"an index of nothing":    archived(t, "index.json", `{"schemaVersion":2,"manifests":[]}`),
		"a missing image":        archived(t, "index.json", `{"schemaVersion":2,"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json","digest":"sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a","size":2,"annotations":{"org.opencontainers.image.ref.name":"v1.2.3"}}]}`),
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
