package image

import (
	"archive/tar"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Contents are those of a file that Write has written. They are read from a folder
// when they are needed, so that it has to stay until then.
type Contents struct {
	// Version is the tag of the image, and Index the image.
	Version string
	Index   v1.ImageIndex
	// Bills are the bills of materials that refer to the images of Index.
	Bills []v1.Image
}

// Open unpacks file into an empty folder and returns its contents.
func Open(file, folder string) (Contents, error) {
	if err := unpack(file, folder); err != nil {
		return Contents{}, fmt.Errorf("%s: %w", file, err)
	}
	var contents Contents
	err := contents.readImage(folder)
	if err == nil {
		err = contents.readBills(filepath.Join(folder, billsFolder))
	}
	if err != nil {
		return Contents{}, fmt.Errorf("%s is not an image that was made here: %w", file, err)
	}
	return contents, nil
}

func (c *Contents) readImage(folder string) error {
	index, manifests, err := listed(folder)
	if err != nil {
		return err
	}
	if len(manifests) != 1 || manifests[0].Annotations[refName] == "" {
		return errors.New("it must list one index of images, with a version")
	}
	c.Version = manifests[0].Annotations[refName]
	c.Index, err = index.ImageIndex(manifests[0].Digest)
	return err
}

func (c *Contents) readBills(folder string) error {
	index, manifests, err := listed(folder)
	if err != nil {
		return err
	}
	for _, manifest := range manifests {
		bill, err := index.Image(manifest.Digest)
		if err != nil {
			return err
		}
		c.Bills = append(c.Bills, bill)
	}
	return nil
}

// listed is what the layout in a folder lists.
func listed(folder string) (v1.ImageIndex, []v1.Descriptor, error) {
	index, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, nil, err
	}
	return index, manifest.Manifests, nil
}

// unpack writes the files of an archive below folder, and nowhere else.
func unpack(file, folder string) error {
	in, err := os.Open(file)
	if err != nil {
		return err
	}
	defer in.Close()
	root, err := os.OpenRoot(folder)
	if err != nil {
		return err
	}
	defer root.Close()
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := unpackFile(root, filepath.FromSlash(header.Name), archive); err != nil {
			return err
		}
	}
}

func unpackFile(root *os.Root, name string, content io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	out, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, content)
	return errors.Join(err, out.Close())
}
