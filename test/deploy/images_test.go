package deploy

import (
	"regexp"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
)

// pinned is an image with a version or a digest.
var pinned = regexp.MustCompile(`^[^:@]+(:v\d+\.\d+\.\d+\S*|(:\S+)?@sha256:[0-9a-f]{64})$`)

// Nothing that runs is named by a tag that moves.
func TestImagesHaveAVersion(t *testing.T) {
	images := 0
	for _, folder := range []string{manifests, complete} {
		for _, object := range rendered(t, folder) {
			d, ok := object.(*appsv1.Deployment)
			if !ok {
				continue
			}
			for _, c := range append(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers...) {
				images++
				if !pinned.MatchString(c.Image) {
					t.Errorf("%s: the image %q has neither a version nor a digest", folder, c.Image)
				}
			}
		}
	}
	if images < 2 {
		t.Errorf("only %d images", images)
	}
}
