// Package archive packs the files of a release, to the same bytes wherever it is done.
package archive

import (
	"archive/tar"
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
	if strings.HasSuffix(archive, ".zip") {
		return pack(newZipPacker(out, modified.UTC()), files)
	}
	compressor, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := WriteTar(compressor, modified, files...); err != nil {
		return err
	}
	return compressor.Close()
}

// WriteTar packs files as a tar that is not compressed.
func WriteTar(out io.Writer, modified time.Time, files ...File) error {
	return pack(tarPacker{tar.NewWriter(out), modified.UTC()}, files)
}

// packer adds files to an archive.
type packer interface {
	add(file File, size int64, content io.Reader) error
	Close() error
}

func pack(p packer, files []File) error {
	for _, file := range files {
		if err := addFile(p, file); err != nil {
			return fmt.Errorf("packing %s: %w", file.Path, err)
		}
	}
	return p.Close()
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
