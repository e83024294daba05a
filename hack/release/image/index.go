package image

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"

	"github.com/eventd/eventd/hack/release/sbom"
)

// index has the image of each platform.
func index(d Description, binaries []Binary) (index v1.ImageIndex, bills []v1.Image, err error) {
	index = empty.Index
	for _, binary := range binaries {
		image, err := platformImage(d, binary)
		if err != nil {
			return nil, nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &binary.Platform}})
		bill, err := bill(d, binary, image)
		if err != nil {
			return nil, nil, err
		}
		bills = append(bills, bill)
	}
	return mutate.Annotations(index, d.labels()).(v1.ImageIndex), bills, nil
}

// bill is the bill of materials of one image, which it refers to.
func bill(d Description, b Binary, image v1.Image) (v1.Image, error) {
	content, err := sbom.Of(b.File, sbom.Subject{Name: d.Title, Version: d.Version, License: d.License, Created: d.Created})
	if err != nil {
		return nil, err
	}
	return referrer(image, sbom.MediaType, content, map[string]string{
		"org.opencontainers.image.created": d.created(),
		"org.opencontainers.image.title":   d.Title + "-" + b.Platform.OS + "-" + b.Platform.Architecture + ".cdx.json",
	})
}
