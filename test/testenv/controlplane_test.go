package testenv_test

import (
	"os"
	"path/filepath"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

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
