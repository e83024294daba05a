// Package image makes the image of eventd, without a daemon and without a registry.
//
// It has no base image: its one layer has a static binary, and the licenses of what is in
// that. What it writes is an OCI image layout in a tar archive: an index of one image per platform, and
// for each of them a bill of materials that refers to it. The same binaries and the
// same Description give the same bytes.
package image
