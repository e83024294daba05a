package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"

	"github.com/eventd/eventd/hack/release/chart"
	"github.com/eventd/eventd/hack/release/checksums"
	"github.com/eventd/eventd/hack/release/image"
	"github.com/eventd/eventd/hack/release/krew"
	"github.com/eventd/eventd/hack/release/manifests"
	"github.com/eventd/eventd/hack/release/notes"
)

// addNotes takes them from the changelog. This is the first step, since a release without
// them is none.
func (r *release) addNotes(context.Context) error {
	changelog, err := os.ReadFile(filepath.Join(r.source.dir, "CHANGELOG.md"))
	if err != nil {
		return err
	}
	// A version may have no tag yet, and a pre-release may never get one: the commit is there.
	text, err := notes.Of(string(changelog), r.source.version, homepage+"/blob/"+r.source.commit+"/")
	if err != nil {
		return err
	}
	return os.WriteFile(r.file("RELEASE_NOTES.md"), []byte(text), 0o644)
}

// addPrograms builds all commands for all platforms.
func (r *release) addPrograms(ctx context.Context) error {
	for _, platform := range r.platforms {
		for _, command := range []string{"eventd", "kubectl-eventd"} {
			product, err := r.build(ctx, command, platform)
			if err != nil {
				return err
			}
			r.products = append(r.products, product)
		}
	}
	return nil
}

// addImage makes it of the programs.
func (r *release) addImage(context.Context) error {
	var binaries []image.Binary
	for _, p := range r.products {
		if p.command == "eventd" && p.platform.OS == "linux" {
			binaries = append(binaries, image.Binary{Platform: p.platform, File: p.binary, Licenses: p.licenses})
		}
	}
	digest, err := image.Write(r.file("eventd_"+r.source.version+"_image.tar"), r.source.description(), binaries)
	r.digest = digest.String()
	return err
}

// addManifests renders what is applied, with the digest of the image.
func (r *release) addManifests(context.Context) error {
	source := manifests.Source{Folder: r.source.dir, Repository: r.source.repository, Digest: r.digest}
	install, err := source.Install()
	if err != nil {
		return err
	}
	if err := r.writeManifest("eventd", "all that eventd needs", install); err != nil {
		return err
	}
	components, err := source.Components()
	if err != nil {
		return err
	}
	for _, name := range components {
		content, err := source.Component(name)
		if err != nil {
			return err
		}
		if err := r.writeManifest("eventd-"+name, "what deploy/"+name+" adds and changes, after eventd.yaml", content); err != nil {
			return err
		}
	}
	return nil
}

func (r *release) writeManifest(name, what string, content []byte) error {
	file := name + ".yaml"
	head := fmt.Sprintf("# eventd %s: %s.\n#\n#   kubectl apply -f %s\n", r.source.version, what, file)
	return os.WriteFile(r.file(file), append([]byte(head), content...), 0o644)
}

// addChart packs the chart, whose values name the image by its digest.
func (r *release) addChart(context.Context) error {
	_, err := chart.Pack(r.source.chart(), chart.Release{
		Version: r.source.version, Repository: r.source.repository, Digest: r.digest, Created: r.source.created,
	}, r.folder)
	return err
}

// addPlugin describes the plugin of kubectl to krew, in a folder of its own: the name of
// the file is given.
func (r *release) addPlugin(context.Context) error {
	plugin := krew.Plugin{Version: r.source.version, Homepage: homepage}
	for _, p := range r.products {
		if p.command != "kubectl-eventd" {
			continue
		}
		digest, err := checksums.Of(r.file(p.archive))
		if err != nil {
			return err
		}
		plugin.Archives = append(plugin.Archives, krew.Archive{
			OS: p.platform.OS, Arch: p.platform.Architecture, URL: r.downloads + "/" + p.archive, SHA256: hex.EncodeToString(digest), Binary: p.program(),
		})
	}
	content, err := plugin.Manifest()
	if err != nil {
		return err
	}
	if err := os.Mkdir(r.file("krew"), 0o755); err != nil {
		return err
	}
	return os.WriteFile(r.file("krew/"+krew.Name+".yaml"), content, 0o644)
}
