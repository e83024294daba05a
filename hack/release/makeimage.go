package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/eventd/eventd/hack/release/image"
)

// makeImage writes the image, whose tag is the version, to a file, and its digest to standard output.
func makeImage(ctx context.Context, args []string) error {
	var s source
	targets := releasedPlatforms.ofImage()
	flags := flag.NewFlagSet("release image", flag.ContinueOnError)
	file := flags.String("o", "bin/eventd-image.tar", "the `file` for the image")
	s.addRepositoryFlag(flags)
	flags.Var(&targets, "platforms", "the `platforms`, of which the image is for those with Linux")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	if targets = targets.ofImage(); len(targets) == 0 {
		return errNoLinux
	}
	work, err := os.MkdirTemp("", "eventd-image-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	binaries, err := s.imageBinaries(ctx, targets, work)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(*file), 0o755); err != nil {
		return err
	}
	digest, err := image.Write(*file, s.description(), binaries)
	if err != nil {
		return err
	}
	fmt.Println(digest)
	return nil
}

// imageBinaries compiles eventd for each platform of the image.
func (s source) imageBinaries(ctx context.Context, targets platforms, dir string) (binaries []image.Binary, err error) {
	for _, platform := range targets {
		folder := filepath.Join(dir, platform.OS+"-"+platform.Architecture)
		if err := os.Mkdir(folder, 0o755); err != nil {
			return nil, err
		}
		file := filepath.Join(folder, "eventd")
		if err := s.compile(ctx, platform, "eventd", file); err != nil {
			return nil, err
		}
		licenses, err := s.licenseFiles(ctx, platform, "eventd", folder)
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, image.Binary{Platform: platform, File: file, Licenses: licenses})
	}
	return binaries, nil
}
