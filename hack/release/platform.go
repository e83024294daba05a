package main

import v1 "github.com/google/go-containerregistry/pkg/v1"

// platforms are those that are built for.
type platforms []v1.Platform

// releasedPlatforms are those that are built for. The image is for those with Linux.
var releasedPlatforms = platforms{
	{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"},
	{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"},
	{OS: "windows", Architecture: "amd64"},
}

// ofImage are those that a node can have.
func (p platforms) ofImage() (nodes platforms) {
	for _, platform := range p {
		if platform.OS == "linux" {
			nodes = append(nodes, platform)
		}
	}
	return nodes
}
