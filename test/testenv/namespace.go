package testenv

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// cleanUpTimeout bounds what is done for a namespace after its test.
const cleanUpTimeout = 10 * time.Second

// Namespace makes a namespace for this test alone, with a name that contains the
// test's, and removes it with its Events when the test ends.
func (c *ControlPlane) Namespace(t testing.TB) string {
	t.Helper()
	client, err := c.client()
	if err != nil {
		t.Fatalf("testenv: %v", err)
	}
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: namePrefix(t.Name())},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatalf("testenv: making a namespace: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), cleanUpTimeout)
		defer cancel()
		removeNamespace(ctx, client, namespace.Name)
	})
	return namespace.Name
}

// removeNamespace does the work of the namespace controller: otherwise the namespace
// would be Terminating forever, and its Events would be in every later list of all
// namespaces. It ignores errors, since a test may have stopped the control plane.
func removeNamespace(ctx context.Context, client kubernetes.Interface, name string) {
	namespaces := client.CoreV1().Namespaces()
	// Deleted before its Events, so that no client adds any in between.
	_ = namespaces.Delete(ctx, name, metav1.DeleteOptions{})
	_ = client.CoreV1().Events(name).DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	_, _ = namespaces.Finalize(ctx, &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{Name: name},
	}, metav1.UpdateOptions{})
}

// namePrefix makes a prefix for names of objects from the name of a test: lower-case
// letters, digits and single dashes.
func namePrefix(testName string) string {
	const longest = 50 // of the 63 of a DNS label; the apiserver adds 5
	words := strings.FieldsFunc(strings.ToLower(testName), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	})
	prefix := strings.Join(words, "-")
	if prefix == "" {
		prefix = "test"
	}
	return strings.TrimRight(prefix[:min(len(prefix), longest)], "-") + "-"
}
