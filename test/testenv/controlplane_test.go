package testenv_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

func TestNamespacesAreSeparateAndGoWithTheirTest(t *testing.T) {
	cluster := testenv.Shared(t)
	var first, second string
	t.Run("two of One/test", func(t *testing.T) {
		first, second = cluster.Namespace(t), cluster.Namespace(t)
		createEvent(t, cluster.Config(), first, "event")
		const prefix = "testnamespacesareseparateandgowiththeirtest-two-of"
		if first == second || !strings.HasPrefix(first, prefix) {
			t.Errorf("they are called %s and %s, want different names with the prefix %s", first, second, prefix)
		}
	})
	client := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1()
	for _, name := range []string{first, second} {
		if _, err := client.Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s is still there: %v", name, err)
		}
	}
	events, err := client.Events(first).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("%d events are still there (%v)", len(events.Items), err)
	}
}

func TestControlPlaneIsTheSameToItsClientsAfterItWasAway(t *testing.T) {
	cluster := testenv.StartForTest(t, testenv.Options{})
	token := kubernetes.NewForConfigOrDie(cluster.ServiceAccount(t, metav1.NamespaceDefault, "client"))
	for name, away := range map[string]func() error{
		"down":   cluster.Down,
		"killed": func() error { return cluster.Signal(syscall.SIGKILL) }, // no time for a last flush
	} {
		created := createEvent(t, cluster.Config(), metav1.NamespaceDefault, name)
		if err := away(); err != nil {
			t.Fatal(err)
		}
		if _, err := token.Discovery().ServerVersion(); !errors.Is(err, syscall.ECONNREFUSED) {
			t.Errorf("%s: a client got %v", name, err)
		}
		if err := cluster.Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := token.Discovery().ServerVersion(); err != nil {
			t.Errorf("%s: a token from before: %v", name, err)
		}
		events := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Events(metav1.NamespaceDefault)
		if kept, err := events.Get(t.Context(), name, metav1.GetOptions{}); err != nil || kept.UID != created.UID {
			t.Errorf("%s: the event has the UID %s, want %s (%v)", name, kept.UID, created.UID, err)
		}
	}
	if err := errors.Join(cluster.Stop(), cluster.Stop()); err != nil {
		t.Errorf("stop, twice: %v", err)
	}
	requireGone(t, filepath.Dir(cluster.Kubeconfig()))
}

func createEvent(t *testing.T, config *rest.Config, namespace, name string) *corev1.Event {
	t.Helper()
	event, err := kubernetes.NewForConfigOrDie(config).CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name},
		InvolvedObject: corev1.ObjectReference{Namespace: namespace},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return event
}

// A test would see nothing of missing rights if its account had others.
func TestServiceAccountMayDoWhatItIsGrantedAndNoMore(t *testing.T) {
	const account = "reader"
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, cluster.ServiceAccount(t, namespace, account)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{kubeconfig, cluster.Kubeconfig()} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %v (%v)", path, info.Mode(), err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	list := func(namespace string) error {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(namespace); !apierrors.IsForbidden(err) {
		t.Fatalf("without a RoleBinding: %v, want 403", err)
	}
	right := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}}
	cluster.Grant(t, namespace, account, right)
	if err := list(namespace); err != nil {
		t.Errorf("with a RoleBinding: %v", err)
	}
	if err := list(metav1.NamespaceDefault); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: %v, want 403", err)
	}
}
