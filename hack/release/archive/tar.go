package archive

import (
	"archive/tar"
	"io"
	"time"
)

// tarPacker packs a tar.
type tarPacker struct {
	*tar.Writer
	modified time.Time
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
