package image

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// path is that of the binary in the image.
	path = "eventd"
	// licenses is the folder where scanners of images find licenses.
	licenses = "licenses"
)

// layer has the binary and its licenses. All belong to root and nobody can change them.
func layer(b Binary, created time.Time) (v1.Layer, error) {
	var out bytes.Buffer
	archive := tar.NewWriter(&out)
	if err := addFile(archive, path, b.File, 0o555, created); err != nil {
		return nil, err
	}
	for _, file := range b.Licenses {
		if err := addFile(archive, licenses+"/"+filepath.Base(file), file, 0o444, created); err != nil {
			return nil, err
		}
	}
	if err := archive.Close(); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}

func addFile(archive *tar.Writer, name, file string, mode int64, created time.Time) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Size: int64(len(content)), ModTime: created.UTC(), Format: tar.FormatUSTAR,
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	_, err = archive.Write(content)
	return err
}
