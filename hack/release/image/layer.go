package image

import (
	"bytes"
	"compress/gzip"
	"io"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/eventd/eventd/hack/release/archive"
)

const (
	// path is that of the binary in the image.
	path = "eventd"
	// licenses is the folder where scanners of images find licenses.
	licenses = "licenses"
)

// layer has the binary and its licenses. All belong to root and nobody can change them.
func layer(b Binary, created time.Time) (v1.Layer, error) {
	files := []archive.File{{Name: path, Path: b.File, Mode: 0o555}}
	for _, file := range b.Licenses {
		files = append(files, archive.File{Name: licenses + "/" + filepath.Base(file), Path: file, Mode: 0o444})
	}
	var out bytes.Buffer
	if err := archive.WriteTar(&out, created, files...); err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(out.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}
