package servingca

import (
	"context"
	"errors"
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

// The right to create is one on the ConfigMap only, by its name: who could create the Secret could
// have the apiserver put the token of another account into it.
func TestCreationIsLimitedToTheConfigMap(t *testing.T) {
	s := newScene(t)
	s.deleteConfigMap()
	s.deleteSecret()
	manager, err := New(Options{Config: s.account, Namespace: s.namespace, Name: "other", Times: steadyTimes()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	if err := manager.store.writeBundle(ctx, content{}, nil); err == nil || !strings.Contains(err.Error(), "cannot patch") {
		t.Errorf("another name: %v", err)
	}
	manager.store.name = objectName
	if err := manager.store.writeBundle(ctx, content{}, nil); err != nil {
		t.Error(err)
	}
	created, err := s.client.ConfigMaps(s.namespace).Get(ctx, objectName, metav1.GetOptions{})
	if err != nil || len(created.Data) > 0 || created.Labels["app.kubernetes.io/name"] != "eventd" {
		t.Errorf("it has created %v (%v)", created, err)
	}
	// Another process has created it meanwhile, and written it.
	s.editConfigMap(map[string]any{"ca.crt": "of another"})
	if err := manager.store.writeBundle(ctx, content{}, []byte("of this")); err != nil {
		t.Error(err)
	}
	if found, err := s.client.ConfigMaps(s.namespace).Get(ctx, objectName, metav1.GetOptions{}); err != nil || found.Data["ca.crt"] != "of another" {
		t.Errorf("a creation has changed it to %q (%v)", found.Data["ca.crt"], err)
	}
	if err := manager.store.writeSecret(ctx, content{}, nil); !errors.Is(err, errNoSecret) {
		t.Errorf("the Secret: %v", err)
	}
	s.createSecret()
	for what, err := range map[string]error{
		"Secret":    manager.store.writeSecret(ctx, content{secretVersion: "1"}, map[string][]byte{"x": nil}),
		"ConfigMap": manager.store.writeBundle(ctx, content{configMapVersion: "1"}, nil),
	} {
		if err == nil || !strings.Contains(err.Error(), "modified") {
			t.Errorf("another version of the %s: %v", what, err)
		}
	}
}
