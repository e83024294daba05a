package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

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
	token     string // file of the token for other replicas
}

const eventdUser = "system:serviceaccount:kube-system:eventd"

func newReplicas(t *testing.T) *replicas {
	t.Helper()
	cluster := testenv.Shared(t)
	if err := cluster.Apply(t.Context(), "../../../deploy"); err != nil {
		t.Fatal(err)
	}
	client, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	r := &replicas{
		t: t, cluster: cluster, client: client,
		namespace: cluster.Namespace(t),
		account:   cluster.ServiceAccount(t, "kube-system", "eventd"),
		token:     filepath.Join(t.TempDir(), "token"),
	}
	peer := cluster.ServiceAccount(t, "kube-system", "eventd", "eventd")
	if err := os.WriteFile(r.token, []byte(peer.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	r.copyElection()
	return r
}

// copyElection creates a Lease for the test, with the rights that deploy/ grants on the
// one in kube-system.
func (r *replicas) copyElection() {
	r.t.Helper()
	deployed, err := r.client.RbacV1().Roles("kube-system").Get(r.t.Context(), "eventd-leader-election", metav1.GetOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	meta := metav1.ObjectMeta{Name: "eventd"}
	_, err = r.client.RbacV1().Roles(r.namespace).Create(r.t.Context(), &rbacv1.Role{ObjectMeta: meta, Rules: deployed.Rules}, metav1.CreateOptions{})
	_, bound := r.client.RbacV1().RoleBindings(r.namespace).Create(r.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "eventd"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "kube-system", Name: "eventd"}},
	}, metav1.CreateOptions{})
	_, created := r.client.CoordinationV1().Leases(r.namespace).Create(r.t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, metav1.CreateOptions{})
	if err := errors.Join(err, bound, created); err != nil {
		r.t.Fatal(err)
	}
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: r.namespace, Name: "eventd"},
		{Verb: "create", Resource: "events", Namespace: r.namespace},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: authenticationConfigMap},
	} {
		eventually(r.t, "RBAC allows "+right.Verb+" "+right.Resource, func() bool {
			review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(r.t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: eventdUser, ResourceAttributes: &right},
			}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed
		})
	}
}

// start starts a replica and returns when it serves. host is the URL of the apiserver,
// or empty for the default.
func (r *replicas) start(host string, more ...string) *child {
	r.t.Helper()
	account := rest.CopyConfig(r.account)
	if host != "" {
		account.Host = host
	}
	kubeconfig := filepath.Join(r.t.TempDir(), "kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, account); err != nil {
		r.t.Fatal(err)
	}
	c := startEventd(r.t, append([]string{
		"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0",
		"--leader-elect-resource-namespace=" + r.namespace, "--peer-token-file=" + r.token,
	}, more...)...)
	c.config.BearerToken = ""
	admin := r.cluster.Config()
	c.config.CertData, c.config.KeyData, c.config.BearerToken = admin.CertData, admin.KeyData, admin.BearerToken
	return c
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

// report posts an Event to a replica. Like any client, it retries with the same name.
func (r *replicas) report(to *child, name string) error {
	r.t.Helper()
	client, err := kubernetes.NewForConfig(to.config)
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	_, err = client.CoreV1().Events(r.namespace).Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: r.namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: r.namespace, Name: "web"},
		Reason:         "Started", Message: "Container started", Type: corev1.EventTypeNormal, Count: 1,
		Source: corev1.EventSource{Component: "tester"},
	}, metav1.CreateOptions{})
	return err
}

// counted waits until the Events about the Pod count so many occurrences.
func (r *replicas) counted(want int32) {
	r.t.Helper()
	eventually(r.t, fmt.Sprintf("%d occurrences are counted", want), func() bool {
		list, err := r.client.CoreV1().Events(r.namespace).List(r.t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Pod"})
		if err != nil {
			r.t.Fatal(err)
		}
		sum := int32(0)
		for _, event := range list.Items {
			sum += event.Count
		}
		if sum > want {
			r.t.Fatalf("%d occurrences are counted, of %d", sum, want)
		}
		return sum == want
	})
}

// waitRole waits until a replica reports a role.
func (c *child) waitRole(t *testing.T, want string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last answer: %s", last)
		}
	}()
	eventually(t, "the role is "+want, func() bool {
		_, body, err := get(t, c.config, "/readyz?verbose")
		last = fmt.Sprint(body, err)
		return err == nil && strings.Contains(body, "\nrole: "+want)
	})
}

func (c *child) requireReady(t *testing.T) {
	t.Helper()
	for _, path := range []string{"/livez?verbose", "/readyz?verbose"} {
		if status, body, err := get(t, c.config, path); err != nil || status != http.StatusOK {
			t.Errorf("%s: %d %s %v", path, status, body, err)
		}
	}
}

// metric returns the sum of a metric over all labels.
func (c *child) metric(t *testing.T, name string) (sum float64) {
	t.Helper()
	status, body, err := get(t, c.config, "/metrics")
	if err != nil || status != http.StatusOK {
		t.Fatalf("/metrics: %d %v", status, err)
	}
	found := false
	for line := range strings.Lines(body) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if base, _, _ := strings.Cut(series, "{"); base != name {
			continue
		}
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			t.Fatal(err)
		}
		found = true
		sum += n
	}
	if !found {
		t.Fatalf("there is no metric %s", name)
	}
	return sum
}

func (c *child) signal(t *testing.T, s syscall.Signal) {
	t.Helper()
	if err := c.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
}

func (c *child) requireExit(t *testing.T, code int) (stderr string) {
	t.Helper()
	stderr, state := c.end(t)
	if state.ExitCode() != code {
		t.Errorf("%s, want exit code %d\n%s", state, code, stderr)
	}
	return stderr
}

// awaitUnready waits until a replica is not ready, with why in the reason.
func (c *child) awaitUnready(t *testing.T, why string) {
	t.Helper()
	eventually(t, "a replica is not ready: "+why, func() bool {
		status, body, err := get(t, c.config, "/readyz/leader")
		return err == nil && status == http.StatusInternalServerError && strings.Contains(body, why)
	})
}
