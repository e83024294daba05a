package image

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

const (
	// refName is the annotation that has the tag of a manifest in a layout.
	refName = "org.opencontainers.image.ref.name"
	// imageName is the annotation that has the whole name. containerd reads it, and so do kind, k3s and Docker.
	imageName = "io.containerd.image.name"
	// billsFolder is the layout of the bills in that of the image. What imports an image takes each manifest
	// that the layout of the image lists for an image, and a bill cannot be unpacked.
	billsFolder = "sbom"
)

// Write makes the image of these binaries, writes its layout as an archive to file, and
// returns the digest of the index. What file had before is replaced as a whole.
func Write(file string, d Description, binaries []Binary) (digest v1.Hash, err error) {
	annotations, err := d.annotations()
	if err != nil {
		return digest, err
	}
	index, bills, err := index(d, binaries)
	if err != nil {
		return digest, err
	}
	if digest, err = index.Digest(); err != nil {
		return digest, err
	}
	work, err := os.MkdirTemp(filepath.Dir(file), ".layout-")
	if err != nil {
		return digest, err
	}
	defer os.RemoveAll(work)
	folder, archive := filepath.Join(work, "layout"), filepath.Join(work, "layout.tar")
	if err := writeFolder(folder, annotations, index, bills); err != nil {
		return digest, err
	}
	if err := pack(archive, folder, d.Created); err != nil {
		return digest, err
	}
	return digest, os.Rename(archive, file)
}

// annotations are what the layout says of the image that it lists.
func (d Description) annotations() (map[string]string, error) {
	annotations := map[string]string{refName: d.Version}
	if d.Repository == "" {
		return annotations, nil
	}
	repository, err := name.NewRepository(d.Repository)
	if err != nil {
		return nil, err
	}
	// Kubernetes and containerd have another name for Docker Hub.
	annotations[imageName] = strings.Replace(repository.Tag(d.Version).Name(), name.DefaultRegistry+"/", "docker.io/", 1)
	return annotations, nil
}

// writeFolder writes the layout of the image, and that of its bills in it.
func writeFolder(folder string, annotations map[string]string, index v1.ImageIndex, bills []v1.Image) error {
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return err
	}
	if err := path.AppendIndex(index, layout.WithAnnotations(annotations)); err != nil {
		return err
	}
	if path, err = layout.Write(filepath.Join(folder, billsFolder), empty.Index); err != nil {
		return err
	}
	for _, bill := range bills {
		if err := path.AppendImage(bill); err != nil {
			return err
		}
	}
	return nil
}

// pack archives the files of folder, in the order of their names.
func pack(archive, folder string, modified time.Time) (err error) {
	out, err := os.Create(archive)
	if err != nil {
		return err
	}
	defer func() {
		if closed := out.Close(); err == nil {
			err = closed
		}
	}()
	writer := tar.NewWriter(out)
	err = filepath.WalkDir(folder, func(file string, entry fs.DirEntry, err error) error {
		if err != nil || file == folder {
			return err
		}
		name, err := filepath.Rel(folder, file)
		if err != nil {
			return err
		}
		return packFile(writer, file, filepath.ToSlash(name), entry, modified)
	})
	if err != nil {
		return err
	}
	return writer.Close()
}

func packFile(writer *tar.Writer, file, name string, entry fs.DirEntry, modified time.Time) error {
	header := &tar.Header{Name: name, ModTime: modified.UTC(), Format: tar.FormatUSTAR}
	if entry.IsDir() {
		header.Typeflag, header.Name, header.Mode = tar.TypeDir, name+"/", 0o755
		return writer.WriteHeader(header)
	}
	info, err := entry.Info()
	if err != nil {
		return err
	}
	header.Typeflag, header.Mode, header.Size = tar.TypeReg, 0o644, info.Size()
	if err := writer.WriteHeader(header); err != nil {
		return err
	}
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = io.Copy(writer, in)
	return err
}
