package replica

import (
	"context"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

const (
	// manifests is deploy/ as seen from a package in test/.
	manifests = "../../deploy"

	// account is the ServiceAccount of deploy/, which has a Lease of the same name.
	account = "eventd"
)

// Grant applies the accounts and the rights of both roles, which are in deploy/.
func Grant(ctx context.Context, c *testenv.ControlPlane, deploy string) error {
	for _, file := range []string{"intake/serviceaccount.yaml", "intake/rbac.yaml", "intake/servingca.yaml", "observe/serviceaccount.yaml", "observe/rbac.yaml"} {
		if err := c.Apply(ctx, deploy+"/"+file); err != nil {
			return err
		}
	}
	return nil
}

// Deploy applies them and returns the credentials of its ServiceAccount, once
// its rights are in force. With audiences they are a token for those only.
func Deploy(t testing.TB, c *testenv.ControlPlane, audiences ...string) *rest.Config {
	t.Helper()
	if err := Grant(t.Context(), c, manifests); err != nil {
		t.Fatal(err)
	}
	var reviews []authorizationv1.SubjectAccessReviewSpec
	for _, right := range []authorizationv1.ResourceAttributes{ // one of each binding
		{Verb: "create", Resource: "events"},
		{Verb: "get", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: metav1.NamespaceSystem, Name: account},
		{Verb: "patch", Resource: "secrets", Namespace: metav1.NamespaceSystem, Name: account + "-serving-ca"},
	} {
		reviews = append(reviews, authorizationv1.SubjectAccessReviewSpec{
			User: testenv.User(metav1.NamespaceSystem, account), ResourceAttributes: &right,
		})
	}
	if err := testenv.WaitAllowed(t.Context(), kubernetes.NewForConfigOrDie(c.Config()), reviews...); err != nil {
		t.Fatal(err)
	}
	return c.ServiceAccount(t, metav1.NamespaceSystem, account, audiences...)
}

// DeployObserve gives the account of Deploy the rights of those that observe too, for processes that do both, and
// returns once they are in force.
func DeployObserve(t testing.TB, c *testenv.ControlPlane) {
	t.Helper()
	if err := Grant(t.Context(), c, manifests); err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(c.Config())
	meta := metav1.ObjectMeta{Name: account + "-observes", Namespace: metav1.NamespaceSystem}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceSystem, Name: account}}
	_, all := client.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: meta.Name}, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: account + "-observe"},
	}, metav1.CreateOptions{})
	_, own := client.RbacV1().RoleBindings(meta.Namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta, Subjects: subjects, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: account + "-observe"},
	}, metav1.CreateOptions{})
	for _, err := range []error{all, own} {
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	var reviews []authorizationv1.SubjectAccessReviewSpec
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "watch", Resource: "events"},
		{Verb: "patch", Resource: "configmaps", Namespace: metav1.NamespaceSystem, Name: "eventd-cursors"},
	} {
		reviews = append(reviews, authorizationv1.SubjectAccessReviewSpec{
			User: testenv.User(metav1.NamespaceSystem, account), ResourceAttributes: &right,
		})
	}
	if err := testenv.WaitAllowed(t.Context(), client, reviews...); err != nil {
		t.Fatal(err)
	}
}

// PeerToken is the token by which replicas recognize each other.
func PeerToken(t testing.TB, c *testenv.ControlPlane) string {
	t.Helper()
	return c.ServiceAccount(t, metav1.NamespaceSystem, account, "eventd").BearerToken
}

// Reporter returns the credentials of a ServiceAccount with the rights that every
// recorder needs, in one namespace.
func Reporter(t testing.TB, c *testenv.ControlPlane, namespace string) *rest.Config {
	t.Helper()
	return Account(t, c, namespace, "reporter", "create", "patch")
}

// Account returns the credentials of a new ServiceAccount with the given rights on
// the Events of its namespace, in both API groups.
func Account(t testing.TB, c *testenv.ControlPlane, namespace, name string, verbs ...string) *rest.Config {
	t.Helper()
	config := c.ServiceAccount(t, namespace, name)
	if len(verbs) > 0 {
		c.Grant(t, namespace, name, rbacv1.PolicyRule{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: verbs})
	}
	return config
}

// Event is what a client posts about a Pod that does not correlate by itself.
func Event(namespace, name, pod string) *corev1.Event {
	now := metav1.Now()
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: pod},
		Reason:         "Tested", Message: "It was tested.", Type: corev1.EventTypeNormal, Count: 1,
		FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: "test"},
	}
}
