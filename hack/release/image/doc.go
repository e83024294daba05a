// Package image makes the image of eventd, without a daemon and without a registry.
//
// It has no base image: its one layer has a static binary, and the licenses of what is in
// that. What it writes is an OCI image layout in a tar archive, which lists nothing but an index of one
// image per platform. The folder sbom in the archive is another layout, of a bill of materials for each
// image, which refers to it. The same binaries and the same Description give the same bytes.
package image
