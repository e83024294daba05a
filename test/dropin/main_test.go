package dropin

import (
	"os"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/stored"
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
	config := testenv.Shared(t).ServiceAccount(t, namespace, "controller")
	testenv.Shared(t).Grant(t, namespace, "controller", rules...)
	return config
}

// eventsByReason returns the Events in a namespace.
func eventsByReason(t *testing.T, namespace string) map[string][]corev1.Event {
	t.Helper()
	out := make(map[string][]corev1.Event)
	for _, e := range stored.List(t, testenv.Shared(t), namespace) {
		out[e.Reason] = append(out[e.Reason], e)
	}
	return out
}

func podIn(namespace string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "web-0", UID: "web-0-uid"}}
}
