package image

import (
	"context"
	"fmt"
	"os"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Push copies the image that Write has written to file to a repository such as
// registry.example/eventd, with the credentials of "docker login": first the index,
// under its version as the tag, then the bills of materials, which the registry lists as
// referrers. It returns the index by its digest.
func Push(ctx context.Context, file, repository string) (name.Digest, error) {
	to, err := name.NewRepository(repository)
	if err != nil {
		return name.Digest{}, err
	}
	work, err := os.MkdirTemp("", "eventd-push-")
	if err != nil {
		return name.Digest{}, err
	}
	defer os.RemoveAll(work)
	contents, err := Open(file, work)
	if err != nil {
		return name.Digest{}, err
	}
	options := []remote.Option{remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain)}
	if err := remote.WriteIndex(to.Tag(contents.Version), contents.Index, options...); err != nil {
		return name.Digest{}, fmt.Errorf("pushing the image: %w", err)
	}
	for _, bill := range contents.Bills {
		if err := pushBill(to, bill, options); err != nil {
			return name.Digest{}, fmt.Errorf("pushing a bill of materials: %w", err)
		}
	}
	digest, err := contents.Index.Digest()
	return to.Digest(digest.String()), err
}

// pushBill gives it no tag: it is found by what it refers to.
func pushBill(to name.Repository, bill v1.Image, options []remote.Option) error {
	digest, err := bill.Digest()
	if err != nil {
		return err
	}
	return remote.Write(to.Digest(digest.String()), bill, options...)
}
