package image

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

var (
	created = time.Date(2026, 11, 26, 22, 0, 0, 0, time.UTC)
	release = Description{
		Title: "eventd", Description: "Events", Source: "https://example.com/eventd", License: "Apache-2.0",
		Version: "v1.2.3", Revision: "0123abcd", Created: created,
	}
	amd64 = v1.Platform{OS: "linux", Architecture: "amd64"}
	arm64 = v1.Platform{OS: "linux", Architecture: "arm64"}
)

// binaries are two that differ, and have build information and a license.
func binaries(t *testing.T) []Binary {
	t.Helper()
	content := read(t, program)
	dir := t.TempDir()
	var made []Binary
	for _, platform := range []v1.Platform{amd64, arm64} {
		file := filepath.Join(dir, platform.Architecture)
		if err := os.WriteFile(file, append(slices.Clone(content), platform.Architecture...), 0o755); err != nil {
			t.Fatal(err)
		}
		license := filepath.Join(dir, platform.Architecture+"-LICENSE")
		if err := os.WriteFile(license, []byte("license of "+platform.Architecture), 0o644); err != nil {
			t.Fatal(err)
		}
		made = append(made, Binary{Platform: platform, File: file, Licenses: []string{license}})
	}
	return made
}

// write writes the image of the binaries to a file.
func write(t *testing.T, d Description, binaries []Binary) (file string, digest v1.Hash) {
	t.Helper()
	file = filepath.Join(t.TempDir(), "image.tar")
	digest, err := Write(file, d, binaries)
	if err != nil {
		t.Fatal(err)
	}
	return file, digest
}

// opened is the contents of such a file.
func opened(t *testing.T, file string) Contents {
	t.Helper()
	contents, err := Open(file, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return contents
}

// images are those of an index, by architecture.
func images(t *testing.T, index v1.ImageIndex) map[string]v1.Image {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]v1.Image{}
	for _, descriptor := range manifest.Manifests {
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		if descriptor.Platform == nil || descriptor.Platform.OS != "linux" {
			t.Fatalf("an image is for %v", descriptor.Platform)
		}
		found[descriptor.Platform.Architecture] = image
	}
	return found
}

func TestImageIsValid(t *testing.T) {
	t.Parallel()
	binaries := binaries(t)
	file, digest := write(t, release, binaries)
	contents := opened(t, file)
	if err := validate.Index(contents.Index); err != nil {
		t.Error(err)
	}
	if have, err := contents.Index.Digest(); err != nil || have != digest || contents.Version != release.Version {
		t.Errorf("the file has %v as %q (%v), not %v", have, contents.Version, err, digest)
	}
	if mediaType, err := contents.Index.MediaType(); err != nil || mediaType != types.OCIImageIndex {
		t.Errorf("the index is %v (%v)", mediaType, err)
	}
	found := images(t, contents.Index)
	if len(found) != len(binaries) {
		t.Errorf("%d platforms", len(found))
	}
	for _, binary := range binaries {
		if found[binary.Platform.Architecture] == nil {
			t.Fatalf("no image for %v", binary.Platform)
		}
		checkConfig(t, found[binary.Platform.Architecture], binary.Platform)
		checkLayer(t, found[binary.Platform.Architecture], binary)
	}
}

// labels are what the index, the images and their configurations say.
var labels = map[string]string{
	"org.opencontainers.image.title": "eventd", "org.opencontainers.image.description": "Events",
	"org.opencontainers.image.source": "https://example.com/eventd", "org.opencontainers.image.licenses": "Apache-2.0",
	"org.opencontainers.image.version": "v1.2.3", "org.opencontainers.image.revision": "0123abcd",
	"org.opencontainers.image.created": "2026-11-26T22:00:00Z",
}

func TestIndexSaysWhatItIs(t *testing.T) {
	t.Parallel()
	file, _ := write(t, release, binaries(t))
	manifest, err := opened(t, file).Index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(labels, manifest.Annotations); diff != "" {
		t.Errorf("the index is annotated with (-want +got)\n%s", diff)
	}
	unknown := release
	unknown.Revision, unknown.Created = "", created.In(time.FixedZone("", 3600))
	have := unknown.labels()
	if _, ok := have["org.opencontainers.image.revision"]; ok || have["org.opencontainers.image.created"] != "2026-11-26T22:00:00Z" {
		t.Errorf("without a commit, at another place, it says %v", have)
	}
}

func checkConfig(t *testing.T, image v1.Image, platform v1.Platform) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	want := v1.Config{
		User: "65532:65532", Entrypoint: []string{"/eventd"}, WorkingDir: "/",
		ExposedPorts: map[string]struct{}{"10280/tcp": {}}, Labels: labels,
	}
	if diff := cmp.Diff(want, config.Config); diff != "" {
		t.Errorf("%v is configured with (-want +got)\n%s", platform, diff)
	}
	if config.OS != platform.OS || config.Architecture != platform.Architecture || !config.Created.Equal(created) {
		t.Errorf("%v says it is for %s/%s, of %v", platform, config.OS, config.Architecture, config.Created)
	}
	if len(config.History) != 1 || !config.History[0].Created.Equal(created) {
		t.Errorf("%v has the history %+v", platform, config.History)
	}
	manifest, err := image.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(labels, manifest.Annotations); diff != "" {
		t.Errorf("%v is annotated with (-want +got)\n%s", platform, diff)
	}
	if manifest.MediaType != types.OCIManifestSchema1 || manifest.Config.MediaType != types.OCIConfigJSON {
		t.Errorf("%v is %v with %v", platform, manifest.MediaType, manifest.Config.MediaType)
	}
}

func checkLayer(t *testing.T, image v1.Image, binary Binary) {
	t.Helper()
	layers, err := image.Layers()
	if err != nil || len(layers) != 1 {
		t.Fatalf("%d layers (%v)", len(layers), err)
	}
	if mediaType, err := layers[0].MediaType(); err != nil || mediaType != types.OCILayer {
		t.Errorf("the layer is %v (%v)", mediaType, err)
	}
	if size, err := layers[0].Size(); err != nil || size > int64(len(read(t, binary.File)))*3/4 {
		t.Errorf("the layer has %d bytes (%v) of %d", size, err, len(read(t, binary.File)))
	}
	content, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer content.Close()
	archive := tar.NewReader(content)
	checkFile(t, archive, "eventd", 0o555, binary.File)
	checkFile(t, archive, "licenses/"+binary.Platform.Architecture+"-LICENSE", 0o444, binary.Licenses[0])
	if header, err := archive.Next(); !errors.Is(err, io.EOF) {
		t.Errorf("there is another file: %v (%v)", header, err)
	}
}

// checkFile compares the next file of a layer.
func checkFile(t *testing.T, archive *tar.Reader, name string, mode int64, file string) {
	t.Helper()
	header, err := archive.Next()
	if err != nil {
		t.Fatal(err)
	}
	if header.Name != name || header.Typeflag != tar.TypeReg || header.Mode != mode || header.Uid != 0 || header.Gid != 0 ||
		!header.ModTime.Equal(created) {
		t.Errorf("the file is %+v", header)
	}
	have, err := io.ReadAll(archive)
	if want := read(t, file); err != nil || !bytes.Equal(have, want) {
		t.Errorf("%s has %d bytes (%v) that are not the %d of %s", name, len(have), err, len(want), file)
	}
}

// The folder, the times of the files, the rights of the user and what is in the folder
// already make no difference.
func TestImageIsTheSameWhereverItIsMade(t *testing.T) {
	t.Parallel()
	first, second := binaries(t), binaries(t)
	for _, binary := range second {
		if err := errors.Join(os.Chtimes(binary.File, created, created), os.Chmod(binary.File, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	file, digest := write(t, release, first)
	another, same := write(t, release, second)
	if digest != same || !bytes.Equal(read(t, file), read(t, another)) {
		t.Errorf("two images of the same binaries are %v and %v, or their files differ", digest, same)
	}
	if again, err := Write(file, release, second); err != nil || again != digest || !bytes.Equal(read(t, file), read(t, another)) {
		t.Errorf("over another file it is %v (%v)", again, err)
	}
	later := release
	later.Created = created.Add(time.Second)
	if _, other := write(t, later, first); other == digest {
		t.Error("the image of another commit has the same digest")
	}
}

func TestImageOfWhatIsNoBinaryIsRefused(t *testing.T) {
	t.Parallel()
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no binary"), 0o755); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if digest, err := Write(filepath.Join(dir, "image.tar"), release, []Binary{{Platform: amd64, File: text}}); err == nil {
		t.Errorf("its image is %v", digest)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("it left %v (%v)", left, err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	content, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return content
}
