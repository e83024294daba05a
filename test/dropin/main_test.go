package dropin

import (
	"context"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }

// eventRights returns the rights on events of most controllers.
func eventRights(group string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}
}

// controllerConfig returns the configuration of a ServiceAccount with the rights in a namespace.
func controllerConfig(t *testing.T, namespace string, rules ...rbacv1.PolicyRule) *rest.Config {
	t.Helper()
	admin := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	role := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "controller"}, Rules: rules}
	if _, err := admin.RbacV1().Roles(namespace).Create(t.Context(), role, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	binding := &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "controller"},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "controller"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "controller"}},
	}
	if _, err := admin.RbacV1().RoleBindings(namespace).Create(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	config := testenv.Shared(t).ServiceAccount(t, namespace, "controller")
	clients := kubernetes.NewForConfigOrDie(config)
	// The authorizer sees a new binding after a moment.
	for _, rule := range rules {
		if rule.Resources[0] != "events" {
			continue
		}
		eventually(t, "the authorizer sees the binding", func() bool {
			probe := &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Name: "probe", Namespace: namespace},
				InvolvedObject: corev1.ObjectReference{Namespace: namespace},
			}
			_, err := clients.CoreV1().Events(namespace).Create(t.Context(), probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err == nil
		})
		break
	}
	return config
}

// eventually polls a condition that cannot be waited for.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	deadline, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.Done():
			t.Fatal("not in time: " + what)
		}
	}
}

// stored returns the Events in a namespace, by reason.
func stored(t *testing.T, namespace string) map[string][]corev1.Event {
	t.Helper()
	list, err := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config()).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := make(map[string][]corev1.Event)
	for _, e := range list.Items {
		out[e.Reason] = append(out[e.Reason], e)
	}
	return out
}

func podIn(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0", UID: "web-0-uid"}}
}
