package image

import (
	"encoding/json"
	"fmt"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// emptyConfig is the configuration of a manifest that is no image: the empty descriptor
// of the OCI image specification.
const (
	emptyConfig     = "{}"
	emptyConfigType = types.MediaType("application/vnd.oci.empty.v1+json")
)

// artifact is a manifest that is no image, with one blob.
type artifact struct {
	manifest []byte
	blob     v1.Layer
}

// referrer is an artifact about a manifest, as a registry lists them for it.
func referrer(subject partial.Describable, mediaType string, content []byte, annotations map[string]string) (v1.Image, error) {
	about, err := partial.Descriptor(subject)
	if err != nil {
		return nil, err
	}
	config, err := partial.Descriptor(static.NewLayer([]byte(emptyConfig), emptyConfigType))
	if err != nil {
		return nil, err
	}
	blob := static.NewLayer(content, types.MediaType(mediaType))
	layer, err := partial.Descriptor(blob)
	if err != nil {
		return nil, err
	}
	layer.Annotations = annotations
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, ArtifactType: mediaType,
		Config: *config, Layers: []v1.Descriptor{*layer}, Annotations: annotations,
		Subject: &v1.Descriptor{MediaType: about.MediaType, Digest: about.Digest, Size: about.Size},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artifact{manifest: manifest, blob: blob})
}

func (a artifact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }
func (a artifact) RawManifest() ([]byte, error)        { return a.manifest, nil }
func (a artifact) RawConfigFile() ([]byte, error)      { return []byte(emptyConfig), nil }

func (a artifact) LayerByDigest(digest v1.Hash) (partial.CompressedLayer, error) {
	have, err := a.blob.Digest()
	if err != nil {
		return nil, err
	}
	if digest != have {
		return nil, fmt.Errorf("the artifact has no blob %v", digest)
	}
	return a.blob, nil
}
