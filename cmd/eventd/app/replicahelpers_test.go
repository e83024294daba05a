package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/link"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// replicas are processes of eventd that share a Lease, with the ServiceAccount and the
// rights of deploy/, against a kube-apiserver.
type replicas struct {
	t         *testing.T
	cluster   *testenv.ControlPlane
	client    kubernetes.Interface // of an administrator
	namespace string               // of the Lease and the Events
	account   *rest.Config
	token     string // for other replicas
}

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	cluster := testenv.Shared(t)
	t.Chdir("..") // from there, replica.Deploy finds deploy/
	r := &replicas{
		t: t, cluster: cluster, client: kubernetes.NewForConfigOrDie(cluster.Config()),
		namespace: cluster.Namespace(t),
		account:   replica.Deploy(t, cluster), token: replica.PeerToken(t, cluster),
	}
	r.copyElection()
	return r
}

// copyElection creates a Lease for the test, with the rights that deploy/ grants on the
// one in kube-system.
func (r *replicas) copyElection() {
	r.t.Helper()
	rbac, meta := r.client.RbacV1(), metav1.ObjectMeta{Name: "eventd"}
	deployed, err := rbac.Roles(metav1.NamespaceSystem).Get(r.t.Context(), "eventd-leader-election", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	_, err = rbac.Roles(r.namespace).Create(r.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: deployed.Rules}, metav1.CreateOptions{})
	_, bound := rbac.RoleBindings(r.namespace).Create(r.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "eventd"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: metav1.NamespaceSystem, Name: "eventd"}},
	}, metav1.CreateOptions{})
	_, created := r.client.CoordinationV1().Leases(r.namespace).Create(r.t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, metav1.CreateOptions{})
	allowed := testenv.WaitAllowed(r.t.Context(), r.client, authorizationv1.SubjectAccessReviewSpec{
		User: testenv.User(metav1.NamespaceSystem, "eventd"),
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: r.namespace, Name: "eventd",
		},
	})
	if err := errors.Join(err, bound, created, allowed); err != nil {
		r.t.Fatal(err)
	}
}

// start starts a replica and returns when it serves.
func (r *replicas) start(flags ...string) *child {
	r.t.Helper()
	return r.startWith(replica.Options{Credentials: r.account, PeerToken: r.token}, flags...)
}

// startBehind starts a replica whose requests to the apiserver pass a link.
func (r *replicas) startBehind(flags ...string) (*child, *link.Link) {
	r.t.Helper()
	l := link.New(r.t, strings.TrimPrefix(r.account.Host, "https://"))
	account := rest.CopyConfig(r.account)
	account.Host = "https://" + l.Address()
	return r.startWith(replica.Options{Credentials: account, PeerToken: r.token}, flags...), l
}

func (r *replicas) startWith(o replica.Options, flags ...string) *child {
	r.t.Helper()
	o.Flags = append([]string{"--leader-elect-resource-namespace=" + r.namespace}, flags...)
	return startChild(r.t, r.cluster.Config(), o)
}

// shortLease makes takeovers fast.
var shortLease = []string{
	"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
}

// holder returns the holder of the Lease.
func (r *replicas) holder() string {
	r.t.Helper()
	lease, err := r.client.CoordinationV1().Leases(r.namespace).Get(r.t.Context(), "eventd", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	if lease.Spec.HolderIdentity == nil {
		return ""
	}
	return *lease.Spec.HolderIdentity
}

// post posts an Event to a replica.
func (r *replicas) post(to *child, name string) {
	r.t.Helper()
	if err := create(r.t.Context(), kubernetes.NewForConfigOrDie(to.config), r.namespace, name); err != nil {
		r.t.Errorf("%s: %v", name, err)
	}
}

// awaitCount waits until the Events about the Pod count so many occurrences.
func (r *replicas) awaitCount(want int64) {
	r.t.Helper()
	await.Until(r.t, fmt.Sprintf("%d occurrences are counted", want), func() bool {
		var sum int64
		for _, event := range stored.ByObject(r.t, r.cluster, r.namespace)["web"] {
			sum += stored.Count(&event)
		}
		if sum > want {
			r.t.Fatalf("%d occurrences are counted, of %d", sum, want)
		}
		return sum == want
	})
}

// awaitAnswer waits for an answer of a replica with a text in it.
func (c *child) awaitAnswer(path string, status int, text string) {
	c.t.Helper()
	awaitAnswer(c.t, c.config, path, status, text)
}

// awaitLeader waits until a replica that is ready leads.
func (c *child) awaitLeader() {
	c.t.Helper()
	c.awaitAnswer("/readyz?verbose", http.StatusOK, "\nrole: leader\n")
}

// awaitStandby waits until a replica that is ready follows the leader.
func (c *child) awaitStandby(leader string) {
	c.t.Helper()
	c.awaitAnswer("/readyz?verbose", http.StatusOK, "\nrole: standby of "+leader+"\n")
}

func (c *child) requireReady() {
	c.t.Helper()
	for _, path := range []string{"/livez", "/readyz"} {
		wantAnswer(c.t, c.config, path, http.StatusOK, "")
	}
}

// metric returns the sum of a metric over all labels.
func (c *child) metric(name string) float64 {
	c.t.Helper()
	all, err := c.Metrics(c.t.Context(), c.config)
	sum, found := all.Lookup(name)
	if err != nil || !found {
		c.t.Fatalf("the metric %s: %v, found: %v", name, err, found)
	}
	return sum
}
