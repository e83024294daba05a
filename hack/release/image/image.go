package image

import (
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

const (
	// user is a number, since there is no file that would know a name. It is that of
	// the Pods in deploy/.
	user = "65532:65532"
	// port is the one of --secure-port.
	port = "10280/tcp"
)

// platformImage is the image of one binary.
func platformImage(d Description, b Binary) (v1.Image, error) {
	layer, err := layer(b, d.Created)
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{
		Layer:   layer,
		History: v1.History{Created: v1.Time{Time: d.Created.UTC()}, CreatedBy: "make image", Comment: "/" + path},
	})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = b.Platform.OS, b.Platform.Architecture, b.Platform.Variant
	config.Created = v1.Time{Time: d.Created.UTC()}
	config.Config = v1.Config{
		User: user, Entrypoint: []string{"/" + path}, ExposedPorts: map[string]struct{}{port: {}}, WorkingDir: "/", Labels: d.labels(),
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.Annotations(image, d.labels()).(v1.Image), nil
}
