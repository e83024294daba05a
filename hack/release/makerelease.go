package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/eventd/eventd/hack/release/checksums"
)

// release is what is being made.
type release struct {
	source    source
	platforms platforms
	// downloads is the URL of the folder in which the archives will be.
	downloads string
	// folder has what is published, work what it is made of.
	folder, work string
	// replace allows a folder that is not empty.
	replace bool
	// products are the programs, and digest the image, once they are made.
	products []product
	digest   string
}

// steps are those of a release, in their order. Each adds files: what else is to be released
// is another one here.
var steps = []struct {
	what string
	add  func(*release, context.Context) error
}{
	{"release notes", (*release).addNotes},
	{"programs", (*release).addPrograms},
	{"image", (*release).addImage},
	{"manifests", (*release).addManifests},
	{"chart", (*release).addChart},
	{"plugin of kubectl", (*release).addPlugin},
}

// makeRelease writes all files of a release to a folder, and the image's digest to
// standard output.
func makeRelease(ctx context.Context, args []string) error {
	r := release{platforms: releasedPlatforms}
	flags := flag.NewFlagSet("release all", flag.ContinueOnError)
	flags.Var(&r.platforms, "platforms", "the `platforms` of the archives; the image is for those with Linux")
	r.source.addRepositoryFlag(flags)
	flags.StringVar(&r.downloads, "downloads", "", "the `URL` of the folder in which the archives will be; by default that of a release on GitHub")
	flags.StringVar(&r.folder, "o", "dist", "the `folder` for the release, which must not exist or be empty, unless -replace is given")
	flags.BoolVar(&r.replace, "replace", false, "replace the folder, once the release is complete")
	if err := r.source.parse(flags, args); err != nil {
		return err
	}
	if r.downloads == "" {
		r.downloads = homepage + "/releases/download/" + r.source.version
	}
	if err := r.validate(); err != nil {
		return err
	}
	return r.make(ctx)
}

// validate looks at what can be wrong before anything is built.
func (r *release) validate() error {
	if r.source.commit == "" {
		return errors.New("-commit must be set: the release notes link to its files")
	}
	if r.source.repository == "" {
		return errors.New("-image-repository must be set: the manifests name the image in it")
	}
	if len(r.platforms.ofImage()) == 0 {
		return errNoLinux
	}
	if there, err := os.ReadDir(r.folder); !r.replace && err == nil && len(there) > 0 {
		return fmt.Errorf("the folder %s is not empty", r.folder)
	}
	return nil
}

// make does all steps. The folder is there, or is replaced, only if all of them succeed.
func (r *release) make(ctx context.Context) error {
	folder := filepath.Clean(r.folder)
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	work, err := os.MkdirTemp(filepath.Dir(folder), ".release-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	r.work, r.folder = work, filepath.Join(work, "dist")
	if err := os.Mkdir(r.folder, 0o755); err != nil {
		return err
	}
	for _, step := range steps {
		fmt.Fprintf(os.Stderr, "• %s\n", step.what)
		if err := step.add(r, ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	if err := checksums.Write(r.folder); err != nil {
		return err
	}
	remove := os.Remove // an empty folder makes way
	if r.replace {
		remove = os.RemoveAll
	}
	if err := remove(folder); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(r.folder, folder); err != nil {
		return err
	}
	fmt.Println(r.source.repository + "@" + r.digest)
	return nil
}

// file is the path of a file that is published.
func (r *release) file(name string) string { return filepath.Join(r.folder, filepath.FromSlash(name)) }
