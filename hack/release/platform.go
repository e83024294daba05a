package main

import (
	"errors"
	"fmt"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// platforms is a flag: those that are built for.
type platforms []v1.Platform

// releasedPlatforms are those of the archives. The image is for those with Linux.
var releasedPlatforms = platforms{
	{OS: "linux", Architecture: "amd64"}, {OS: "linux", Architecture: "arm64"},
	{OS: "darwin", Architecture: "amd64"}, {OS: "darwin", Architecture: "arm64"},
	{OS: "windows", Architecture: "amd64"},
}

func (p *platforms) String() string {
	var names []string
	for _, platform := range *p {
		names = append(names, platform.String())
	}
	return strings.Join(names, ",")
}

// Set reads names such as linux/amd64, with commas between them.
func (p *platforms) Set(value string) error {
	*p = nil
	for name := range strings.SplitSeq(value, ",") {
		platform, err := v1.ParsePlatform(name)
		if err != nil {
			return err
		}
		if platform.OS == "" || platform.Architecture == "" || platform.Variant != "" {
			return fmt.Errorf("%q is not OS/ARCHITECTURE", name)
		}
		*p = append(*p, *platform)
	}
	return nil
}

var errNoLinux = errors.New("-platforms must have one with Linux, for the image")

// ofImage are those that a node can have.
func (p platforms) ofImage() (nodes platforms) {
	for _, platform := range p {
		if platform.OS == "linux" {
			nodes = append(nodes, platform)
		}
	}
	return nodes
}
