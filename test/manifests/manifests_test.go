package manifests_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

// The Namespace comes last in the folder, and the account before it needs it.
func TestApplyOfAFolder(t *testing.T) {
	cluster := testenv.Shared(t)
	owner := cluster.Namespace(t) // names that no other run of this test has
	namespace := owner + "-applied"
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "10-account.yaml"), strings.ReplaceAll(`# only a comment
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: first, namespace: NAMESPACE}
---
apiVersion: v1
kind: List
items:
- apiVersion: rbac.authorization.k8s.io/v1
  kind: ClusterRole
  metadata: {name: NAMESPACE}
  rules: [{apiGroups: [""], resources: [events], verbs: [create]}]
- apiVersion: v1
  kind: ConfigMap
  metadata: {name: NAMESPACE}
---
`, "NAMESPACE", namespace))
	writeFile(t, filepath.Join(dir, "20-namespace.yml"), "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+namespace+"}\n")
	writeFile(t, filepath.Join(dir, "notes.txt"), "not a manifest")

	for _, round := range []string{"first", "again"} {
		if err := cluster.Apply(t.Context(), dir); err != nil {
			t.Fatalf("%s: %v", round, err)
		}
	}
	client := kubernetes.NewForConfigOrDie(cluster.Config())
	if _, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "first", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	role, err := client.RbacV1().ClusterRoles().Get(t.Context(), namespace, metav1.GetOptions{})
	if err != nil || len(role.Rules) != 1 {
		t.Errorf("role is %v (%v)", role, err)
	}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Get(t.Context(), namespace, metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

func TestApplySaysWhatIsWrong(t *testing.T) {
	cluster := testenv.Shared(t)
	for name, test := range map[string]struct{ manifest, want string }{
		"unknown kind":  {"apiVersion: v1\nkind: Cheese\nmetadata: {name: gouda}", `applying Cheese gouda: no matches for kind "Cheese"`},
		"unknown field": {"apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndatum: {}", "field not declared in schema"},
		"not yaml":      {"a: [", "manifest.yaml"},
		"nothing":       {"# nothing\n", "no manifests"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "manifest.yaml")
			writeFile(t, path, test.manifest)
			err := cluster.Apply(t.Context(), path)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
