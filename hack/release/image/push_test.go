package image

import (
	"context"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// repositoryIn is a repository in a registry on this machine.
func repositoryIn(t *testing.T, handler http.Handler) string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://") + "/team/eventd"
}

// A registry that lists referrers, and an older one that does not, for which a tag
// lists them.
func TestPushedImageIsFoundByItsTagAndItsBillsByWhatTheyReferTo(t *testing.T) {
	t.Parallel()
	file, digest := write(t, release, binaries(t))
	for what, handler := range map[string]http.Handler{
		"lists referrers": registry.New(registry.WithReferrersSupport(true), registry.Logger(log.New(io.Discard, "", 0))),
		"does not":        registry.New(registry.WithReferrersSupport(false), registry.Logger(log.New(io.Discard, "", 0))),
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			repository := repositoryIn(t, handler)
			reference, err := Push(t.Context(), file, repository)
			if err != nil {
				t.Fatal(err)
			}
			if want := repository + "@" + digest.String(); reference.String() != want {
				t.Errorf("it is pushed as %v, not as %v", reference, want)
			}
			checkPushed(t, reference, digest)
		})
	}
}

func checkPushed(t *testing.T, reference name.Digest, digest v1.Hash) {
	t.Helper()
	if descriptor, err := remote.Head(reference.Context().Tag(release.Version)); err != nil || descriptor.Digest != digest {
		t.Errorf("its tag is %v (%v), not %v", descriptor, err, digest)
	}
	index, err := remote.Index(reference)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Error(err)
	}
	for architecture, image := range images(t, index) {
		digest, err := image.Digest()
		if err != nil {
			t.Fatal(err)
		}
		referrers, err := remote.Referrers(reference.Context().Digest(digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		manifest, err := referrers.IndexManifest()
		if err != nil || len(manifest.Manifests) != 1 {
			t.Fatalf("to %s refer %+v (%v)", architecture, manifest, err)
		}
		bill, err := remote.Image(reference.Context().Digest(manifest.Manifests[0].Digest.String()))
		if err != nil {
			t.Fatal(err)
		}
		checkSubject(t, bill, image)
		if len(*decoded(t, bill).Components) != 2 {
			t.Errorf("the bill of %s is empty", architecture)
		}
	}
}

func TestPushToARegistryThatNeverAnswersEndsWithItsContext(t *testing.T) {
	t.Parallel()
	file, _ := write(t, release, binaries(t))
	asked := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	repository := repositoryIn(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
	}))
	go func() {
		<-asked
		cancel()
	}()
	if reference, err := Push(ctx, file, repository); !errors.Is(err, context.Canceled) {
		t.Errorf("it is pushed as %v (%v)", reference, err)
	}
}
