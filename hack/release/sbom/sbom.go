// Package sbom lists what a Go binary was built from, as a CycloneDX software bill of
// materials.
//
// The list is the build information that the linker wrote into the binary: the modules
// whose packages are in it, with their checksums of go.sum, and the Go release. It
// is the same whenever it is made of the same binary.
package sbom

import (
	"bytes"
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/uuid"
	"github.com/package-url/packageurl-go"

	"github.com/eventd/eventd/hack/release/checksums"
)

// MediaType is that of the JSON which Of returns.
const MediaType = "application/vnd.cyclonedx+json"

// Subject is what the bill is about.
type Subject struct {
	// Name is that of the program, and Version its release: the build information of
	// a binary that is built in a checkout has neither.
	Name, Version string
	// License is an SPDX identifier.
	License string
	// Created is the time of the bill.
	Created time.Time
}

// Of is the bill of the binary in file, as CycloneDX 1.6 in JSON.
func Of(file string, subject Subject) ([]byte, error) {
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return nil, err
	}
	digest, err := checksums.Of(file)
	if err != nil {
		return nil, err
	}
	bom, err := billOf(info, digest, subject)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var out bytes.Buffer
	err = cdx.NewBOMEncoder(&out, cdx.BOMFileFormatJSON).SetPretty(true).SetEscapeHTML(false).EncodeVersion(bom, cdx.SpecVersion1_6)
	return out.Bytes(), err
}

func billOf(info *debug.BuildInfo, digest []byte, subject Subject) (*cdx.BOM, error) {
	program := application(info, digest, subject)
	components := []cdx.Component{standardLibrary(info)}
	for _, dependency := range info.Deps {
		component, err := module(dependency)
		if err != nil {
			return nil, err
		}
		components = append(components, component)
	}
	var references []string
	for _, component := range components {
		references = append(references, component.BOMRef)
	}
	bom := cdx.NewBOM()
	// The same binary has the same serial number.
	bom.SerialNumber = uuid.NewSHA1(uuid.NameSpaceOID, digest).URN()
	bom.Metadata = &cdx.Metadata{Timestamp: subject.Created.UTC().Format(time.RFC3339), Component: &program}
	bom.Components = &components
	// The build information has no graph, so that all are those of the program.
	bom.Dependencies = &[]cdx.Dependency{{Ref: program.BOMRef, Dependencies: &references}}
	return bom, nil
}

// application is the binary itself.
func application(info *debug.BuildInfo, digest []byte, subject Subject) cdx.Component {
	url := purl(info.Main.Path, subject.Version, strings.TrimPrefix(strings.TrimPrefix(info.Path, info.Main.Path), "/"))
	return cdx.Component{
		BOMRef: url, PackageURL: url, Type: cdx.ComponentTypeApplication, Name: subject.Name, Version: subject.Version,
		Licenses:   &cdx.Licenses{{License: &cdx.License{ID: subject.License}}},
		Hashes:     &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(digest)}},
		Properties: settings(info),
	}
}

// settings are those of the build that decide on the bytes.
func settings(info *debug.BuildInfo) *[]cdx.Property {
	properties := []cdx.Property{{Name: "go:version", Value: info.GoVersion}}
	for _, setting := range info.Settings {
		switch setting.Key {
		case "GOOS", "GOARCH", "GOAMD64", "GOARM64", "CGO_ENABLED":
			properties = append(properties, cdx.Property{Name: "go:" + setting.Key, Value: setting.Value})
		}
	}
	return &properties
}

// standardLibrary has the name under which vulnerability databases have it.
func standardLibrary(info *debug.BuildInfo) cdx.Component {
	version, _, _ := strings.Cut(strings.TrimPrefix(info.GoVersion, "go"), " ")
	url := purl("std", version, "")
	return cdx.Component{BOMRef: url, PackageURL: url, Type: cdx.ComponentTypeLibrary, Name: "std", Version: version}
}

// module is a dependency, or what replaced it.
func module(m *debug.Module) (cdx.Component, error) {
	for m.Replace != nil {
		m = m.Replace
	}
	url := purl(m.Path, m.Version, "")
	component := cdx.Component{BOMRef: url, PackageURL: url, Type: cdx.ComponentTypeLibrary, Name: m.Path, Version: m.Version}
	if m.Sum == "" {
		return component, nil // A folder has no checksum.
	}
	// "h1:" is the SHA-256 of the list of the SHA-256 of the module's files.
	sum, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(m.Sum, "h1:"))
	if err != nil || len(sum) != sha256.Size {
		return component, fmt.Errorf("module %s has the checksum %q", m.Path, m.Sum)
	}
	component.Hashes = &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: hex.EncodeToString(sum)}}
	return component, nil
}

func purl(path, version, subpath string) string {
	namespace, name := "", path
	if slash := strings.LastIndexByte(path, '/'); slash >= 0 {
		namespace, name = path[:slash], path[slash+1:]
	}
	return packageurl.NewPackageURL(packageurl.TypeGolang, namespace, name, version, nil, subpath).ToString()
}
