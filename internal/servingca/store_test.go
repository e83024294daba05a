package servingca

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/test/await"
)

// What is beside the bundle does not prevent that it is restored.
func TestConfigMapWithMoreInItIsRepaired(t *testing.T) {
	for name, edit := range map[string]map[string]any{
		"the bundle as binary data": {"data": nil, "binaryData": map[string][]byte{BundleKey: foreignCA(t)}},
		"no place for the bundle":   {"data": map[string]any{BundleKey: nil, "other": strings.Repeat("x", 1<<20-100)}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			t.Parallel()
			s := newScene(t)
			m := s.start(steadyTimes())
			m.lead()
			m.awaitIssued()
			s.awaitSettled(func(found *state) bool { return found.current != nil })
			want := s.text()
			s.patchConfigMap(edit)
			await.Until(t, "it is repaired", func() bool { return s.text() == want })
		})
	}
}

// A full Secret does not prevent that its CA is replaced.
func TestSecretWithMoreInItIsRepaired(t *testing.T) {
	s := newScene(t)
	m := s.start(steadyTimes())
	m.lead()
	m.awaitIssued()
	s.awaitSettled(func(found *state) bool { return found.current != nil })
	s.editSecret(map[string][]byte{currentCertificateKey: nil, currentKeyKey: nil, switchedKey: nil, "other": make([]byte, 1<<20-100)})
	s.awaitSettled(func(found *state) bool { return found.next != nil })
}

func (s *scene) patchConfigMap(object map[string]any) {
	s.t.Helper()
	if _, err := s.client.ConfigMaps(s.namespace).Patch(s.t.Context(), objectName, types.MergePatchType, mustJSON(s.t, object), metav1.PatchOptions{}); err != nil {
		s.t.Fatal(err)
	}
}
