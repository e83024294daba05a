package image

import (
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Description is what the image says of itself, in labels of its configuration and in
// annotations of its manifests.
type Description struct {
	Title, Description string
	// Source is a URL, License an SPDX identifier, Revision a commit. Version is also
	// the tag.
	Source, License, Version, Revision string
	// Created is the time of all files.
	Created time.Time
	// Repository is where the image will be, such as registry.example/eventd, if that is known. It is
	// not in the image: the archive gives it to what imports the image without a registry.
	Repository string
}

// Binary is eventd for one platform, in a file.
type Binary struct {
	Platform v1.Platform
	File     string
	// Licenses are files that the image has too, in /licenses.
	Licenses []string
}

// labels have the names of the OCI image specification.
func (d Description) labels() map[string]string {
	const prefix = "org.opencontainers.image."
	labels := map[string]string{}
	for key, value := range map[string]string{
		"title": d.Title, "description": d.Description, "source": d.Source, "licenses": d.License,
		"version": d.Version, "revision": d.Revision, "created": d.created(),
	} {
		if value != "" {
			labels[prefix+key] = value
		}
	}
	return labels
}

func (d Description) created() string { return d.Created.UTC().Format(time.RFC3339) }
