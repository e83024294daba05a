package main

import (
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/test/testenv"
)

// prepared returns a cluster in which a run is prepared.
func prepared(t *testing.T) *cluster {
	t.Helper()
	c, err := connect(testenv.Shared(t).Config(), nil)
	if err == nil {
		err = c.prepare(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Nothing but the kube-apiserver is there to do it.
func TestRunLeavesNothingBehindAndCanBeRepeated(t *testing.T) {
	t.Chdir("../..") // the manifests are found from there, as by make run
	for range 2 {
		c := prepared(t)
		_, err := c.client.CoreV1().Events(demoNamespace).Create(t.Context(), &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: "web.1", Namespace: demoNamespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: demoNamespace, Name: "web"},
		}, metav1.CreateOptions{})
		if err := errors.Join(err, c.close(t.Context())); err != nil {
			t.Fatal(err)
		}
		if _, err := c.client.CoreV1().Namespaces().Get(t.Context(), demoNamespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the namespace after a run: %v", err)
		}
		if list, err := c.client.CoreV1().Events(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=web"}); err != nil || len(list.Items) > 0 {
			t.Errorf("%d Events are left behind (%v)", len(list.Items), err)
		}
	}
}

// As a run leaves it that was ended with a second Ctrl-C.
func TestNamespaceThatIsBeingDeletedIsMadeAnew(t *testing.T) {
	t.Chdir("../..")
	c := prepared(t)
	if err := errors.Join(c.applied.Remove(t.Context()), c.prepare(t.Context()), c.close(t.Context())); err != nil {
		t.Fatal(err)
	}
}
