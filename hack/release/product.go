package main

import (
	"context"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/eventd/eventd/hack/release/archive"
	"github.com/eventd/eventd/hack/release/sbom"
)

// product is a command for a platform.
type product struct {
	command  string
	platform v1.Platform
	// binary is the file that was built, archive the name of the one that is published.
	binary, archive string
	// licenses are the files that go with it.
	licenses []string
}

// program is its name on its platform.
func (p product) program() string {
	if p.platform.OS == "windows" {
		return p.command + ".exe"
	}
	return p.command
}

// build compiles a command, packs it with the licenses, and lists what it is made of.
func (r *release) build(ctx context.Context, command string, platform v1.Platform) (product, error) {
	p := product{command: command, platform: platform}
	name := command + "_" + r.source.version + "_" + platform.OS + "_" + platform.Architecture
	p.binary = filepath.Join(r.work, name, p.program())
	if err := os.Mkdir(filepath.Dir(p.binary), 0o755); err != nil {
		return p, err
	}
	if err := r.source.compile(ctx, platform, command, p.binary); err != nil {
		return p, err
	}
	var err error
	if p.licenses, err = r.source.licenseFiles(ctx, platform, command, filepath.Dir(p.binary)); err != nil {
		return p, err
	}
	p.archive = name + ".tar.gz"
	if platform.OS == "windows" {
		p.archive = name + ".zip"
	}
	packed := []archive.File{{Name: p.program(), Path: p.binary, Mode: 0o755}}
	for _, file := range p.licenses {
		packed = append(packed, archive.File{Name: filepath.Base(file), Path: file, Mode: 0o644})
	}
	if err := archive.Write(r.file(p.archive), r.source.created, packed...); err != nil {
		return p, err
	}
	bill, err := sbom.Of(p.binary, sbom.Subject{Name: command, Version: r.source.version, License: license, Created: r.source.created})
	if err != nil {
		return p, err
	}
	return p, os.WriteFile(r.file(name+".cdx.json"), bill, 0o644)
}
