package delivery

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

// configMapRights are all that the cursors need, for the ConfigMap of this name only.
func configMapRights(name string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{
		APIGroups: []string{""}, Resources: []string{"configmaps"}, ResourceNames: []string{name},
		Verbs: []string{"get", "patch", "create"},
	}
}

// Two processes with the rights of deploy/ store cursors in a real apiserver. The ConfigMap is
// created, removed, and changed by others.
func TestCursorsInAnAPIServer(t *testing.T) {
	const account, name = "eventd", "cursors"
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	config := cluster.ServiceAccount(t, namespace, account)
	cluster.Grant(t, namespace, account, configMapRights(name))
	admin := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().ConfigMaps(namespace)
	a, b := storedCursors(t, config, namespace, name), storedCursors(t, config, namespace, name)
	write := func(c *cursors, x, y string) {
		t.Helper()
		c.advance("x", at(0, x))
		c.advance("y", at(0, y))
		if err := c.write(quiet(t)); err != nil {
			t.Fatal(err)
		}
	}
	want := func(step string, keys map[string]string) *corev1.ConfigMap {
		t.Helper()
		m, err := admin.Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(m.Data) != len(keys) {
			t.Errorf("%s: %v, want %v", step, m.Data, keys)
		}
		for key, rv := range keys {
			if e, err := decodeEntry(m.Data[key]); m.Data[key] != rv && (err != nil || e.ResourceVersion != rv) {
				t.Errorf("%s: %s is %q, want %s", step, key, m.Data[key], rv)
			}
		}
		return m
	}
	remove := func() {
		t.Helper()
		if err := admin.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}

	want("created by the first read", nil)
	write(a, "10", "10")
	write(b, "9", "100")
	m := want("the later ones", map[string]string{"x": "10", "y": "100"})
	m.Data["foreign"] = "kept"
	if _, err := admin.Update(t.Context(), m, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	write(a, "11", "11")
	want("with a foreign key", map[string]string{"x": "11", "y": "100", "foreign": "kept"})

	remove()
	write(a, "12", "12")
	want("created again", map[string]string{"x": "12", "y": "100"})
	remove()
	c := storedCursors(t, config, namespace, name)
	write(c, "1", "1") // it had the name first, and has not read what a knows
	write(a, "13", "13")
	want("created again by another", map[string]string{"x": "13", "y": "100"})

	// The next process reads it, and removes what is no longer used.
	d := storedCursors(t, config, namespace, name)
	if got := fmt.Sprint(d.cursor("x"), d.cursor("y")); got != "{0 13} {0 100}" {
		t.Errorf("read again: %s", got)
	}
	e := d.entries["y"]
	e.UnusedSince = e.Updated.Add(-2 * unusedTime)
	d.entries["y"] = e
	delete(d.receivers, "y")
	write(d, "14", "0")
	want("without an unused one", map[string]string{"x": "14"})
}

// storedCursors returns the cursors of a process that has just started.
func storedCursors(t *testing.T, config *rest.Config, namespace, name string) *cursors {
	t.Helper()
	m, err := newMetrics(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := newCursors(newStore(kubernetes.NewForConfigOrDie(config).CoreV1(), namespace, name), func() bool { return true }, m)
	c.receivers["x"], c.receivers["y"] = true, true
	if err := c.load(quiet(t)); err != nil {
		t.Fatal(err)
	}
	return c
}
