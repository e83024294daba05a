package archive

import (
	"archive/zip"
	"compress/flate"
	"io"
	"time"
)

// zipPacker packs a zip.
type zipPacker struct {
	*zip.Writer
	modified time.Time
}

func newZipPacker(out io.Writer, modified time.Time) zipPacker {
	writer := zip.NewWriter(out)
	writer.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
		return flate.NewWriter(out, flate.BestCompression)
	})
	return zipPacker{writer, modified}
}

func (p zipPacker) add(file File, _ int64, content io.Reader) error {
	header := &zip.FileHeader{Name: file.Name, Method: zip.Deflate, Modified: p.modified}
	header.SetMode(file.Mode.Perm())
	out, err := p.CreateHeader(header)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return err
}
