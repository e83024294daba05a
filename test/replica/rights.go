package replica

import (
	"context"
	"errors"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

const (
	// manifests is where they are, seen from a package in test/.
	manifests = "../../deploy"

	accountNamespace = "kube-system"
	account          = "eventd"
	// rightsTimeout is for RBAC to take notice.
	rightsTimeout = time.Minute
)

// Deploy applies deploy/ and returns the credentials of its ServiceAccount, once
// it has its rights. With audiences they are a token for those only.
func Deploy(t testing.TB, c *testenv.ControlPlane, audiences ...string) *rest.Config {
	t.Helper()
	if err := c.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	// One of each binding.
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "create", Resource: "events"},
		{Verb: "get", Resource: "configmaps", Namespace: accountNamespace, Name: "extension-apiserver-authentication"},
		{Verb: "update", Group: "coordination.k8s.io", Resource: "leases", Namespace: accountNamespace, Name: account},
	} {
		waitAllowed(t, c, accountNamespace, account, right)
	}
	return c.ServiceAccount(t, accountNamespace, account, audiences...)
}

// Reporter returns the credentials of a ServiceAccount that may do what every
// recorder needs today, in one namespace.
func Reporter(t testing.TB, c *testenv.ControlPlane, namespace string) *rest.Config {
	t.Helper()
	return Account(t, c, namespace, "reporter", "create", "patch")
}

// Account returns the credentials of a new ServiceAccount that has the given rights
// on the Events of its namespace, in both API groups; there may be none.
func Account(t testing.TB, c *testenv.ControlPlane, namespace, name string, verbs ...string) *rest.Config {
	t.Helper()
	config := c.ServiceAccount(t, namespace, name)
	if len(verbs) == 0 {
		return config
	}
	client := kubernetes.NewForConfigOrDie(c.Config()).RbacV1()
	_, err := client.Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: verbs}},
	}, metav1.CreateOptions{})
	_, bindErr := client.RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: name},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: name}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bindErr); err != nil {
		t.Fatal(err)
	}
	for _, verb := range verbs {
		waitAllowed(t, c, namespace, name, authorizationv1.ResourceAttributes{
			Verb: verb, Group: "events.k8s.io", Resource: "events", Namespace: namespace,
		})
	}
	return config
}

// waitAllowed waits until RBAC has taken notice of a right of a ServiceAccount.
func waitAllowed(t testing.TB, c *testenv.ControlPlane, namespace, name string, what authorizationv1.ResourceAttributes) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), rightsTimeout)
	defer cancel()
	reviews := kubernetes.NewForConfigOrDie(c.Config()).AuthorizationV1().SubjectAccessReviews()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		review, err := reviews.Create(ctx, &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: "system:serviceaccount:" + namespace + ":" + name, ResourceAttributes: &what,
		}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatalf("the rights of %s/%s: %v", namespace, name, err)
		}
		if review.Status.Allowed {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("%s/%s may not %s %s: %v", namespace, name, what.Verb, what.Resource, context.Cause(ctx))
		}
	}
}
