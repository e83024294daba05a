package image

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// The entries have the times and modes of the release, whatever the files here have.
func TestFileHasNothingOfThisMachine(t *testing.T) {
	t.Parallel()
	file, _ := write(t, release, binaries(t))
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	var names []string
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, header.Name)
		mode := int64(0o644)
		if header.Typeflag == tar.TypeDir {
			mode = 0o755
		}
		if header.Mode != mode || header.Uid != 0 || header.Gid != 0 || header.Uname != "" || !header.ModTime.Equal(created) ||
			strings.HasSuffix(header.Name, "/") != (header.Typeflag == tar.TypeDir) {
			t.Errorf("an entry is %+v", header)
		}
	}
	// Each folder is there before its files.
	for _, name := range []string{"blobs/", "blobs/sha256/", "index.json", "oci-layout", "sbom/", "sbom/index.json"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %q", name, names)
		}
	}
	if !slices.IsSorted(names) {
		t.Errorf("the names are not in order: %q", names)
	}
	if left, err := os.ReadDir(filepath.Dir(file)); err != nil || len(left) != 1 {
		t.Errorf("beside the image are %v (%v)", left, err)
	}
}

// What imports an image, such as "ctr images import --digests", unpacks each manifest that the layout lists, and a bill
// cannot be unpacked.
func TestLayoutListsNothingButTheImage(t *testing.T) {
	t.Parallel()
	named := release
	named.Repository = "registry.example/eventd"
	file, digest := write(t, named, binaries(t))
	folder := t.TempDir()
	if err := unpack(file, folder); err != nil {
		t.Fatal(err)
	}
	_, manifests, err := listed(folder)
	if err != nil || len(manifests) != 1 || manifests[0].MediaType != types.OCIImageIndex || manifests[0].Digest != digest {
		t.Fatalf("it lists %+v (%v), not %v alone", manifests, err, digest)
	}
	want := map[string]string{"org.opencontainers.image.ref.name": "v1.2.3", "io.containerd.image.name": "registry.example/eventd:v1.2.3"}
	if diff := cmp.Diff(want, manifests[0].Annotations); diff != "" {
		t.Errorf("it is annotated with (-want +got)\n%s", diff)
	}
}

// The name is the one that a kubelet asks for. Without a repository, the layout has the tag alone.
func TestNameOfTheImageInTheLayout(t *testing.T) {
	t.Parallel()
	for repository, want := range map[string]string{
		"":                        "",
		"registry.example/eventd": "registry.example/eventd:v1.2.3",
		"localhost:5000/eventd":   "localhost:5000/eventd:v1.2.3",
		"team/eventd":             "docker.io/team/eventd:v1.2.3",
		"docker.io/team/eventd":   "docker.io/team/eventd:v1.2.3",
		"eventd":                  "docker.io/library/eventd:v1.2.3",
	} {
		annotations, err := Description{Version: "v1.2.3", Repository: repository}.annotations()
		if name, ok := annotations[imageName]; err != nil || name != want || ok != (want != "") {
			t.Errorf("in %q, it is %q (%v), not %q", repository, name, err, want)
		}
	}
	if annotations, err := (Description{Version: "v1.2.3", Repository: "Not A Repository"}).annotations(); err == nil {
		t.Errorf("in no repository, it is %v", annotations)
	}
}
