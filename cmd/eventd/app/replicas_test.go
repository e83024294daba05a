package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/testenv"
)

// replicas are eventds, each a process of its own, that share a Lease. They have
// the account and the rights of deploy/, on a kube-apiserver.
type replicas struct {
	t         *testing.T
	cluster   *testenv.ControlPlane
	client    kubernetes.Interface // an administrator's
	namespace string               // of the Lease, and of what is reported
	account   *rest.Config
	token     string // file with the token that they show each other
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

// copyElection makes a Lease of the test's own, with the rights that deploy/
// gives to the one in kube-system.
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
	_, made := r.client.CoordinationV1().Leases(r.namespace).Create(r.t.Context(), &coordinationv1.Lease{ObjectMeta: meta}, metav1.CreateOptions{})
	if err := errors.Join(err, bound, made); err != nil {
		r.t.Fatal(err)
	}
	for _, right := range []authorizationv1.ResourceAttributes{
		{Verb: "watch", Group: "coordination.k8s.io", Resource: "leases", Namespace: r.namespace, Name: "eventd"},
		{Verb: "create", Resource: "events", Namespace: r.namespace},
		{Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: authenticationConfigMap},
	} {
		eventually(r.t, "RBAC has taken notice of "+right.Verb+" "+right.Resource, func() bool {
			review, err := r.client.AuthorizationV1().SubjectAccessReviews().Create(r.t.Context(), &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: eventdUser, ResourceAttributes: &right},
			}, metav1.CreateOptions{})
			return err == nil && review.Status.Allowed
		})
	}
}

// start starts a replica that reaches the apiserver at host, or directly if that
// is empty. It returns when it serves.
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

// shortLease has a crash, or a loss, be over soon.
var shortLease = []string{
	"--leader-elect-lease-duration=3s", "--leader-elect-renew-deadline=2s", "--leader-elect-retry-period=500ms",
}

// holder is whom the Lease names.
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

// report has an occurrence reported to a replica, as any client would: what it
// is asked to repeat it repeats, under the same name.
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

// counted waits until the Events about the Pod stand for so many occurrences.
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

// role waits until a replica says that it is one.
func (c *child) role(t *testing.T, want string) {
	t.Helper()
	last := ""
	defer func() {
		if t.Failed() {
			t.Logf("the last answer: %s", last)
		}
	}()
	eventually(t, "a replica says that it is "+want, func() bool {
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

// metric is the sum of a metric over all its labels.
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

func TestOneOfThreeReplicasLeadsAndAllAreReady(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("")
	leader.role(t, "leader\n")
	name := r.holder()
	standbys := []*child{r.start(""), r.start("")}
	for _, standby := range standbys {
		standby.role(t, "standby of "+name+"\n")
	}
	for i, replica := range append(standbys, leader) {
		replica.requireReady(t)
		if err := r.report(replica, fmt.Sprintf("web.%d", i)); err != nil {
			t.Errorf("replica %d: %v", i, err)
		}
	}
	r.counted(3)

	standbys[0].signal(t, syscall.SIGTERM)
	standbys[0].requireExit(t, 0)
	if now := r.holder(); now != name {
		t.Errorf("%s leads after the end of a standby, %s before", now, name)
	}
	leader.signal(t, syscall.SIGTERM)
	standbys[1].role(t, "leader\n")
	leader.requireExit(t, 0)
	if err := r.report(standbys[1], "web.4"); err != nil {
		t.Errorf("the new leader: %v", err)
	}
	r.counted(4)
	standbys[1].signal(t, syscall.SIGTERM)
	standbys[1].requireExit(t, 0)
	if now := r.holder(); now != "" {
		t.Errorf("%s holds the Lease, and is gone", now)
	}
}

func TestStandbyPassesOnWhatItReceives(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("")
	leader.role(t, "leader\n")
	standby := r.start("")
	standby.role(t, "standby of")
	before := leader.metric(t, "eventd_occurrences_recorded_total")
	for i := range 5 {
		if err := r.report(standby, fmt.Sprintf("web.%d", i)); err != nil {
			t.Error(err)
		}
	}
	if n := leader.metric(t, "eventd_occurrences_recorded_total") - before; n != 5 {
		t.Errorf("the leader has recorded %v of 5 occurrences", n)
	}
	if n := standby.metric(t, "eventd_occurrences_recorded_total"); n != 0 {
		t.Errorf("the standby has recorded %v occurrences itself", n)
	}
	for replica, want := range map[*child]float64{leader: 1, standby: 0} {
		if got := replica.metric(t, "eventd_election_leading"); got != want {
			t.Errorf("eventd_election_leading is %v, want %v", got, want)
		}
	}
	r.counted(5)
}

func TestLeaderPassesOnWhatItReceivesAfterItHasHandedOver(t *testing.T) {
	r := newReplicas(t)
	former := r.start("", "--shutdown-delay-duration=20s")
	former.role(t, "leader\n")
	next := r.start("")
	next.role(t, "standby of")
	former.signal(t, syscall.SIGTERM)
	next.role(t, "leader\n")
	if status, body, err := get(t, former.config, "/readyz?verbose"); err != nil || status != http.StatusInternalServerError || !strings.Contains(body, "[-]shutdown failed") {
		t.Errorf("/readyz during the shutdown delay: %d %s %v", status, body, err)
	}
	if err := r.report(former, "web.1"); err != nil {
		t.Error(err)
	}
	if n := next.metric(t, `eventd_occurrences_recorded_total`); n != 2 { // with its having become leader
		t.Errorf("the new leader has recorded %v occurrences", n)
	}
	r.counted(1)
	if answer := newCaller(t, former.config, r.namespace, http1).accepted("web.2", http1); !answer.last {
		t.Error("a client is let keep its connection to a replica that is ending")
	}
	// The second signal is for who does not want to wait.
	former.signal(t, syscall.SIGTERM)
	former.requireExit(t, 1)
}

func TestReplicaTakesOverFromALeaderThatIsKilled(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("", shortLease...)
	leader.role(t, "leader\n")
	standby := r.start("", shortLease...)
	standby.role(t, "standby of")
	if err := r.report(leader, "web.1"); err != nil {
		t.Error(err)
	}
	leader.signal(t, syscall.SIGKILL)
	standby.role(t, "leader\n")
	// The client does not know what became of it, and asks again.
	for _, name := range []string{"web.1", "web.2"} {
		if err := r.report(standby, name); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	r.counted(2)
}

func TestReplicaThatIsCutOffLosesTheLeaseAndStandsByUntilItIsElectedAgain(t *testing.T) {
	r := newReplicas(t)
	way := newValve(t, r.account.Host)
	former := r.start(way.host(), shortLease...)
	former.role(t, "leader\n")
	standby := r.start("", shortLease...)
	standby.role(t, "standby of "+r.holder()+"\n")

	way.shut()
	former.role(t, "standby, and nobody is known to lead\n")
	standby.role(t, "leader\n")
	if err := r.report(standby, "web.1"); err != nil {
		t.Error(err)
	}
	// It has nobody to pass anything on to, and cannot ask who calls.
	eventually(t, "the replica that is cut off is not ready", func() bool {
		status, body, err := get(t, former.config, "/readyz?verbose")
		return err == nil && status == http.StatusInternalServerError && strings.Contains(body, "[-]leader failed")
	})
	if status, body, err := get(t, former.config, "/livez"); err != nil || status != http.StatusOK {
		t.Errorf("/livez of a replica that is cut off: %d %s %v", status, body, err)
	}
	way.reopen()
	former.role(t, "standby of "+r.holder()+"\n")
	former.requireReady(t)

	standby.signal(t, syscall.SIGTERM)
	standby.requireExit(t, 0)
	former.role(t, "leader\n")
	if err := r.report(former, "web.2"); err != nil {
		t.Error(err)
	}
	r.counted(2)
	former.signal(t, syscall.SIGTERM)
	former.requireExit(t, 0)
}

// It has nothing to merge it with any more, so it does not wait until it is due.
func TestReplicaThatHasLostItsLeaseWritesWhatItHasDeferred(t *testing.T) {
	r := newReplicas(t)
	way := newValve(t, r.account.Host)
	former := r.start(way.host(), append(shortLease, "--series-heartbeat=24h")...)
	former.role(t, "leader\n")
	standby := r.start("", shortLease...)
	standby.role(t, "standby of")
	for i := range 3 {
		if err := r.report(former, fmt.Sprintf("web.%d", i)); err != nil {
			t.Error(err)
		}
	}
	r.counted(1)
	if n := former.metric(t, "eventd_sink_deferred_series"); n != 1 {
		t.Fatalf("%v series are deferred", n)
	}
	way.shut()
	standby.role(t, "leader\n")
	way.reopen()
	r.counted(3)
	if n := former.metric(t, "eventd_election_leading"); n != 0 {
		t.Error("it leads again")
	}
}

func TestReplicaThatIsToExitOnALostLeaseEndsInOrderWithExitCode1(t *testing.T) {
	r := newReplicas(t)
	way := newValve(t, r.account.Host)
	former := r.start(way.host(), append(shortLease, "--on-lost-lease=exit", "--shutdown-grace-period=4s", "--logging-format=json")...)
	former.role(t, "leader\n")
	way.shut()
	stderr := former.requireExit(t, 1)
	way.reopen()
	for _, want := range []string{
		`"msg":"Lost the lease: leader work stops"`, `"msg":"Shutting down"`, `"msg":"Final accounts"`,
		`"msg":"eventd failed","err":"the leader election lease is lost`,
	} {
		if n := strings.Count(stderr, want); n != 1 {
			t.Errorf("%s is said %d times:\n%s", want, n, stderr)
		}
	}
}

// Its clients are to ask the others, and it may well be the next leader.
func TestStandbyThatCannotReachTheLeaderIsNotReadyUntilItCan(t *testing.T) {
	r := newReplicas(t)
	way := newValve(t, "")
	const lease = 6 * time.Second
	timing := []string{"--leader-elect-lease-duration=6s", "--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"}
	leader := r.start("", append(timing, "--advertise-address="+way.listener.Addr().String())...)
	way.lead(t, leader.config.Host)
	leader.role(t, "leader\n")
	standby := r.start("", timing...)
	standby.role(t, "standby of")
	if err := r.report(standby, "web.1"); err != nil {
		t.Error(err)
	}
	standby.requireReady(t)

	way.shut()
	begun := time.Now()
	standby.awaitUnready(t, "does not answer this replica")
	if took := time.Since(begun); took > lease {
		t.Errorf("it was ready for %s, for longer than a lease", took)
	}
	standby.awaitLine(t, "does not answer this replica")
	leader.requireReady(t)

	way.reopen()
	eventually(t, "it is ready again", func() bool {
		status, _, err := get(t, standby.config, "/readyz")
		return err == nil && status == http.StatusOK
	})
	if err := r.report(standby, "web.2"); err != nil {
		t.Error(err)
	}

	way.shut()
	standby.awaitUnready(t, "does not answer this replica")
	leader.signal(t, syscall.SIGKILL)
	standby.role(t, "leader\n")
	standby.requireReady(t)
	if err := r.report(standby, "web.3"); err != nil {
		t.Error(err)
	}
}

// awaitUnready waits until a replica is not ready for a reason that says so.
func (c *child) awaitUnready(t *testing.T, why string) {
	t.Helper()
	eventually(t, "a replica is not ready: "+why, func() bool {
		status, body, err := get(t, c.config, "/readyz/leader")
		return err == nil && status == http.StatusInternalServerError && strings.Contains(body, why)
	})
}

// Nobody could pass anything on to it: it would not know who the others are.
func TestReplicaWithoutAGoodTokenIsNotElectedUntilItHasOne(t *testing.T) {
	r := newReplicas(t)
	token := filepath.Join(t.TempDir(), "token")
	// It is for the apiserver, and so for no replica.
	if err := os.WriteFile(token, []byte(r.account.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	bad := r.start("", "--peer-token-file="+token)
	bad.awaitLine(t, "this replica's own token is not good")
	if status, body, err := get(t, bad.config, "/readyz?verbose"); err != nil || status != http.StatusInternalServerError || !strings.Contains(body, "[-]leader failed") {
		t.Errorf("/readyz with a token of another audience: %d %s %v", status, body, err)
	}
	good := r.start("")
	good.role(t, "leader\n")
	if err := r.report(good, "web.1"); err != nil {
		t.Error(err)
	}
	content, err := os.ReadFile(r.token)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(token, content, 0o600); err != nil {
		t.Fatal(err)
	}
	bad.role(t, "standby of "+r.holder()+"\n")
	eventually(t, "a replica with a good token is ready", func() bool {
		status, _, err := get(t, bad.config, "/readyz")
		return err == nil && status == http.StatusOK
	})
	if err := r.report(bad, "web.2"); err != nil {
		t.Error(err)
	}
	r.counted(2)
	for _, replica := range []*child{good, bad} {
		replica.signal(t, syscall.SIGTERM)
		replica.requireExit(t, 0)
	}
}

func TestLifecycleOfALeaderIsToldByEventsOfTheLease(t *testing.T) {
	r := newReplicas(t)
	leader := r.start("")
	leader.role(t, "leader\n")
	name := r.holder()
	leader.signal(t, syscall.SIGTERM)
	leader.requireExit(t, 0)
	list, err := r.client.CoreV1().Events(r.namespace).List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.kind=Lease"})
	if err != nil {
		t.Fatal(err)
	}
	var messages []string
	for _, event := range list.Items {
		if event.Reason != "LeaderElection" || event.InvolvedObject.Name != "eventd" || event.Source.Component != "eventd" {
			t.Errorf("an Event of another kind: %+v", event)
		}
		messages = append(messages, event.Message)
	}
	slices.Sort(messages)
	if want := []string{name + " became leader", name + " stopped leading"}; !slices.Equal(messages, want) {
		t.Errorf("told: %q, want %q", messages, want)
	}
}
