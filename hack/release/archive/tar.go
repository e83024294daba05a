package archive

import (
	"archive/tar"
	"compress/gzip"
	"errors"
	"io"
	"time"
)

// tarPacker packs a tar that is compressed with gzip.
type tarPacker struct {
	*tar.Writer
	compressor *gzip.Writer
	modified   time.Time
}

func (p tarPacker) add(file File, size int64, content io.Reader) error {
	header := &tar.Header{
		Typeflag: tar.TypeReg, Name: file.Name, Mode: int64(file.Mode.Perm()), Size: size, ModTime: p.modified, Format: tar.FormatUSTAR,
	}
	if err := p.WriteHeader(header); err != nil {
		return err
	}
	_, err := io.Copy(p, content)
	return err
}

func (p tarPacker) Close() error { return errors.Join(p.Writer.Close(), p.compressor.Close()) }
