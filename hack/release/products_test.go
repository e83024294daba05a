package main

import (
	"bytes"
	"context"
	"debug/buildinfo"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/eventd/eventd/hack/release/checksums"
	"github.com/eventd/eventd/hack/release/image"
)

// testContext bounds what compiles.
func testContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 20*time.Minute)
}

// unpacked is the folder with the files of an archive.
func unpacked(t *testing.T, archive string) string {
	t.Helper()
	folder := t.TempDir()
	if out, err := exec.CommandContext(t.Context(), "tar", "-xzf", filepath.Join(made, archive), "-C", folder).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return folder
}

func TestArchivesHaveTheProgramsOfTheVersion(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Log("programs for Linux do not run here")
	}
	for command, says := range map[string]string{"eventd": "eventd v1.2.3", "kubectl-eventd": version} {
		folder := unpacked(t, named(command, ".tar.gz"))
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 3 || !bytes.Equal(read(t, folder+"/LICENSE"), read(t, checkout+"/LICENSE")) {
			t.Errorf("the archive of %s has %v (%v)", command, entries, err)
		}
		if runtime.GOOS == "linux" {
			out, err := exec.CommandContext(t.Context(), filepath.Join(folder, command), "--version").CombinedOutput()
			if err != nil || !strings.Contains(string(out), says) {
				t.Errorf("%s says %q (%v)", command, out, err)
			}
		}
		checkBill(t, filepath.Join(folder, command), filepath.Join(made, named(command, ".cdx.json")))
		checkLicenses(t, filepath.Join(folder, command), filepath.Join(folder, "THIRD_PARTY_LICENSES"))
	}
}

// checkLicenses looks whether the file has a license of each module of the program.
func checkLicenses(t *testing.T, program, file string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	licenses := string(read(t, file))
	for _, module := range info.Deps {
		if !strings.Contains(licenses, "\n"+module.Path+" "+module.Version+", ") {
			t.Errorf("%s has no license of %s %s", file, module.Path, module.Version)
		}
	}
}

// checkBill looks whether the bill has the modules of the program.
func checkBill(t *testing.T, program, file string) {
	t.Helper()
	info, err := buildinfo.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(read(t, file)), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	if have, want := len(*bom.Components), len(info.Deps)+1; have != want || want < 20 {
		t.Errorf("%s has %d components of %d", file, have, want)
	}
	digest, err := checksums.Of(program)
	if about := bom.Metadata.Component; err != nil || (*about.Hashes)[0].Value != hex.EncodeToString(digest) || about.Version != version {
		t.Errorf("%s is about %+v, not %x (%v)", file, about, digest, err)
	}
}

// The image has the files of the archive, and the manifests and the chart name it by its digest.
func TestImageIsThatOfTheManifests(t *testing.T) {
	t.Parallel()
	contents, err := image.Open(filepath.Join(made, "eventd_v1.2.3_image.tar"), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(contents.Index); err != nil {
		t.Error(err)
	}
	digest, err := contents.Index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{"eventd.yaml", "eventd-certificate.yaml"} {
		if content := read(t, filepath.Join(made, file)); !strings.Contains(string(content), "image: "+repository+"@"+digest.String()+"\n") {
			t.Errorf("%s does not name %v", file, digest)
		}
	}
	values := read(t, filepath.Join(unpacked(t, "eventd-1.2.3.tgz"), "eventd", "values.yaml"))
	if !strings.Contains(string(values), "  repository: "+repository+"\n") || !strings.Contains(string(values), "  digest: "+digest.String()+"\n") {
		t.Errorf("the chart does not name %v", digest)
	}
	archive := unpacked(t, named("eventd", ".tar.gz"))
	for _, file := range []string{"eventd", "LICENSE", "THIRD_PARTY_LICENSES"} {
		if !bytes.Contains(layerOf(t, contents.Index), read(t, filepath.Join(archive, file))) {
			t.Errorf("the image has not the %s of the archive", file)
		}
	}
}

// Its digest is the same in any repository.
func TestImageAloneIsThatOfTheRelease(t *testing.T) {
	t.Parallel()
	alone := filepath.Join(t.TempDir(), "bin", "image.tar")
	ctx, stop := testContext()
	defer stop()
	if err := run(ctx, []string{
		"image", "-source=" + checkout, "-o=" + alone, "-version=" + version, "-commit=" + commit, "-epoch=1795730400",
		"-platforms=darwin/arm64,linux/" + runtime.GOARCH,
	}); err != nil {
		t.Fatal(err)
	}
	if have, want := digestOf(t, alone), digestOf(t, filepath.Join(made, "eventd_v1.2.3_image.tar")); have != want {
		t.Errorf("it is %v, not %v", have, want)
	}
}

func digestOf(t *testing.T, file string) v1.Hash {
	t.Helper()
	contents, err := image.Open(file, t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	digest, err := contents.Index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return digest
}

// layerOf is the only layer of the only image.
func layerOf(t *testing.T, index v1.ImageIndex) []byte {
	t.Helper()
	manifest, err := index.IndexManifest()
	if err != nil || len(manifest.Manifests) != 1 {
		t.Fatalf("it has the images %+v (%v)", manifest, err)
	}
	only, err := index.Image(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := only.Layers()
	if err != nil {
		t.Fatal(err)
	}
	in, err := layers[0].Uncompressed()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	content, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// They link to the commit, since a version that is not tagged names no files.
func TestNotesAreThoseOfTheChangelog(t *testing.T) {
	t.Parallel()
	notes := string(read(t, filepath.Join(made, "RELEASE_NOTES.md")))
	if !strings.HasPrefix(notes, "- ") || !strings.Contains(notes, "](https://github.com/eventd/eventd/blob/"+commit+"/docs/") {
		t.Errorf("they begin with %.200s", notes)
	}
}
