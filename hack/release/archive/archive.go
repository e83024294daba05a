// Package archive packs the files of a release, to the same bytes wherever it is done.
package archive

import (
	"archive/tar"
	"archive/zip"
	"compress/flate"
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// File is one of an archive, which has no entries for folders.
type File struct {
	// Name is that in the archive, Path where it is read.
	Name, Path string
	Mode       os.FileMode
}

// packer adds a file to an archive.
type packer interface {
	add(file File, size int64, content io.Reader) error
	Close() error
}

// Write packs files, in their order: as a zip if that is how the name of the archive
// ends, and otherwise as a tar that is compressed with gzip. All have the same time.
func Write(archive string, modified time.Time, files ...File) (err error) {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	p, err := newPacker(archive, out, modified.UTC())
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := addFile(p, file); err != nil {
			return fmt.Errorf("packing %s: %w", file.Path, err)
		}
	}
	return p.Close()
}

func newPacker(archive string, out io.Writer, modified time.Time) (packer, error) {
	if strings.HasSuffix(archive, ".zip") {
		writer := zip.NewWriter(out)
		writer.RegisterCompressor(zip.Deflate, func(out io.Writer) (io.WriteCloser, error) {
			return flate.NewWriter(out, flate.BestCompression)
		})
		return zipPacker{writer, modified}, nil
	}
	compressor, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	return tarPacker{tar.NewWriter(compressor), compressor, modified}, nil
}

func addFile(p packer, file File) error {
	in, err := os.Open(file.Path)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	return p.add(file, info.Size(), in)
}
