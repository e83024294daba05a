package image

import (
	"bytes"
	"debug/buildinfo"
	"io"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/eventd/eventd/hack/release/sbom"
)

// Each image has a bill of materials that refers to it, and lists the modules of its
// binary and the standard library.
func TestEachImageHasABillOfMaterials(t *testing.T) {
	t.Parallel()
	binaries := binaries(t)
	file, _ := write(t, release, binaries)
	contents := opened(t, file)
	if len(contents.Bills) != len(binaries) {
		t.Fatalf("%d bills", len(contents.Bills))
	}
	images := images(t, contents.Index)
	for i, binary := range binaries {
		checkSubject(t, contents.Bills[i], images[binary.Platform.Architecture])
		info, err := buildinfo.ReadFile(binary.File)
		if err != nil {
			t.Fatal(err)
		}
		bill := decoded(t, contents.Bills[i])
		if have, want := len(*bill.Components), len(info.Deps)+1; have != want || want != 2 {
			t.Errorf("the bill of %v has %d components of %d", binary.Platform, have, want)
		}
		program := bill.Metadata.Component
		if program.Name != "eventd" || program.Version != "v1.2.3" || program.Licenses == nil || (*program.Licenses)[0].License.ID != "Apache-2.0" {
			t.Errorf("the bill of %v is about %+v", binary.Platform, program)
		}
		if bill.Metadata.Timestamp != "2026-11-26T22:00:00Z" {
			t.Errorf("the bill of %v is of %s", binary.Platform, bill.Metadata.Timestamp)
		}
		checkAnnotations(t, contents.Bills[i], "eventd-linux-"+binary.Platform.Architecture+".cdx.json")
	}
}

// checkAnnotations looks for what programs that fetch a bill show, and name its file by.
func checkAnnotations(t *testing.T, bill v1.Image, title string) {
	t.Helper()
	manifest, err := bill.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"org.opencontainers.image.created": "2026-11-26T22:00:00Z", "org.opencontainers.image.title": title}
	for _, annotations := range []map[string]string{manifest.Annotations, manifest.Layers[0].Annotations} {
		if diff := cmp.Diff(want, annotations); diff != "" {
			t.Errorf("a bill is annotated with (-want +got)\n%s", diff)
		}
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Layers[0].MediaType != sbom.MediaType {
		t.Errorf("a bill is %v with %v", manifest.MediaType, manifest.Layers[0].MediaType)
	}
}

func checkSubject(t *testing.T, bill, image v1.Image) {
	t.Helper()
	manifest, err := bill.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := image.Digest()
	if err != nil {
		t.Fatal(err)
	}
	size, err := image.Size()
	if err != nil {
		t.Fatal(err)
	}
	if manifest.Subject == nil || manifest.Subject.Digest != digest || manifest.Subject.Size != size {
		t.Errorf("the bill is about %v, and the image is %v", manifest.Subject, digest)
	}
	if manifest.ArtifactType != sbom.MediaType || manifest.Config.MediaType != emptyConfigType {
		t.Errorf("the bill is %q with %q", manifest.ArtifactType, manifest.Config.MediaType)
	}
	if config, err := bill.RawConfigFile(); err != nil || string(config) != "{}" {
		t.Errorf("its configuration is %s (%v)", config, err)
	}
}

// decoded is the content of a bill.
func decoded(t *testing.T, bill v1.Image) *cdx.BOM {
	t.Helper()
	layers, err := bill.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d blobs (%v)", len(layers), err)
	}
	blob, err := layers[0].Compressed()
	if err != nil {
		t.Fatal(err)
	}
	defer blob.Close()
	content, err := io.ReadAll(blob)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(content), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	return &bom
}
