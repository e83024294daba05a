package chart

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// split decodes documents in their order.
func split(t *testing.T, documents string) (out []*unstructured.Unstructured) {
	t.Helper()
	decoder := utilyaml.NewYAMLOrJSONDecoder(strings.NewReader(documents), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return out
		case err != nil:
			t.Fatal(err)
		case len(object.Object) > 0:
			out = append(out, object)
		}
	}
}
