package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

// deadline bounds every wait of these tests.
const deadline = 2 * time.Minute

// eventd is a running eventd.
type eventd struct {
	t       *testing.T
	cluster *testenv.ControlPlane
	command *exec.Cmd
	stderr  *bytes.Buffer
	exited  chan struct{}
	config  *rest.Config // its address, without credentials
}

// startEventd starts the binary as the ServiceAccount of deploy/, and waits
// until it serves.
func startEventd(t *testing.T, flags ...string) *eventd {
	t.Helper()
	return startEventdFor(t, testenv.Shared(t), flags...)
}

func startEventdFor(t *testing.T, c *testenv.ControlPlane, flags ...string) *eventd {
	t.Helper()
	if err := c.Apply(t.Context(), "../../deploy"); err != nil {
		t.Fatal(err)
	}
	waitAllowed(t, c, "system:serviceaccount:kube-system:eventd", authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication",
		},
	})
	dir := t.TempDir()
	kubeconfig, endpoint := filepath.Join(dir, "eventd.kubeconfig"), filepath.Join(dir, "endpoint.kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, c.ServiceAccount(t, "kube-system", "eventd")); err != nil {
		t.Fatal(err)
	}
	e := &eventd{t: t, cluster: c, stderr: new(bytes.Buffer), exited: make(chan struct{})}
	e.command = exec.Command(binary, append([]string{
		"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0",
		"--endpoint-kubeconfig=" + endpoint, "--leader-elect=false", "--kube-api-qps=unlimited",
	}, flags...)...)
	e.command.Stderr = e.stderr
	if err := e.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(e.exited)
		e.command.Wait()
	}()
	t.Cleanup(func() {
		e.command.Process.Kill()
		<-e.exited
		if t.Failed() {
			t.Logf("the last of eventd's log:\n%s", tail(e.stderr.String(), 20))
		}
	})
	waitFor(t, "eventd to serve", func() (bool, error) {
		select {
		case <-e.exited:
			return false, fmt.Errorf("eventd ended: %s", tail(e.stderr.String(), 20))
		default:
		}
		_, err := os.Stat(endpoint)
		return err == nil, nil
	})
	var err error
	if e.config, err = clientcmd.BuildConfigFromFlags("", endpoint); err != nil {
		t.Fatal(err)
	}
	return e
}

func tail(s string, lines int) string {
	all := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}

// signal sends a signal to the process and waits for its end.
func (e *eventd) signal(s os.Signal) (exitCode int) {
	e.t.Helper()
	if err := e.command.Process.Signal(s); err != nil {
		e.t.Fatal(err)
	}
	select {
	case <-e.exited:
	case <-time.After(deadline):
		e.t.Fatalf("eventd did not end after %v", s)
	}
	return e.command.ProcessState.ExitCode()
}

// terminate ends eventd in order, and it must have written everything.
func (e *eventd) terminate() {
	e.t.Helper()
	if code := e.signal(syscall.SIGTERM); code != 0 {
		e.t.Errorf("eventd ended with %d:\n%s", code, tail(e.stderr.String(), 20))
	}
}

// as is a client of eventd that has the credentials of another configuration:
// all that a client changes is the address.
func (e *eventd) as(credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host = e.config.Host
	config.CAData, config.CAFile = e.config.CAData, e.config.CAFile
	config.ServerName = e.config.ServerName
	return config
}

// counters is what /metrics says.
type counters map[string]float64

// counters reads /metrics.
func (e *eventd) counters() counters {
	e.t.Helper()
	client, err := kubernetes.NewForConfig(e.as(e.cluster.Config()))
	if err != nil {
		e.t.Fatal(err)
	}
	body, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(e.t.Context())
	if err != nil {
		e.t.Fatal(err)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(body))
	if err != nil {
		e.t.Fatal(err)
	}
	out := counters{}
	for name, family := range families {
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			out[name+"{"+strings.Join(labels, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return out
}

// sum adds up all series of a metric whose labels include all the given ones.
func (c counters) sum(name string, labels ...string) (sum float64) {
series:
	for series, value := range c {
		base, rest, _ := strings.Cut(strings.TrimSuffix(series, "}"), "{")
		if base != name {
			continue
		}
		for _, label := range labels {
			if !strings.Contains(","+rest+",", ","+label+",") {
				continue series
			}
		}
		sum += value
	}
	return sum
}

func (c counters) recorded() float64 { return c.sum("eventd_occurrences_recorded_total") }
func (c counters) pending() float64  { return c.sum("eventd_occurrences_pending") }
func (c counters) written() float64 {
	return c.sum("eventd_occurrences_settled_total", "outcome=created") +
		c.sum("eventd_occurrences_settled_total", "outcome=merged") +
		c.sum("eventd_occurrences_settled_total", "outcome=aggregated")
}

// wantConserved checks from the outside that everything is accounted for: once
// nothing is pending, all that was recorded has settled. It returns what was
// read, of the given number of recorded occurrences.
func (e *eventd) wantConserved(recorded int) counters {
	e.t.Helper()
	var c counters
	// Between two stations an occurrence is in neither for a moment.
	waitFor(e.t, "nothing to be pending", func() (bool, error) {
		c = e.counters()
		return c.pending() == 0 && c.sum("eventd_occurrences_settled_total") == c.recorded(), nil
	})
	if c.recorded() != float64(recorded) {
		e.t.Errorf("recorded %v occurrences, want %d", c.recorded(), recorded)
	}
	return c
}

// wantWritten is wantConserved where nothing may have been lost or replayed.
func (e *eventd) wantWritten(recorded int) {
	e.t.Helper()
	if c := e.wantConserved(recorded); c.written() != c.recorded() {
		e.t.Errorf("recorded %v, written %v", c.recorded(), c.written())
	}
}

// finalAccounts is what eventd logs last of its ledger; it must log as JSON.
func (e *eventd) finalAccounts() map[string]float64 {
	e.t.Helper()
	for line := range strings.Lines(e.stderr.String()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "Final accounts" {
			continue
		}
		out := map[string]float64{}
		for name, value := range entry {
			if n, ok := value.(float64); ok {
				out[name] = n
			}
		}
		return out
	}
	e.t.Fatal("eventd logged no accounts")
	return nil
}

// waitFor polls a condition that has nothing to wait on.
func waitFor(t *testing.T, what string, condition func() (bool, error)) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	end := time.After(deadline)
	for {
		ok, err := condition()
		if err != nil {
			t.Fatalf("waiting for %s: %v", what, err)
		}
		if ok {
			return
		}
		select {
		case <-tick.C:
		case <-end:
			t.Fatalf("waited for %s in vain", what)
		}
	}
}

// waitAllowed waits until RBAC has taken notice of a right.
func waitAllowed(t *testing.T, c *testenv.ControlPlane, user string, spec authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	spec.User = user
	waitFor(t, "the rights of "+user, func() (bool, error) {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		return err == nil && review.Status.Allowed, err
	})
}

// reporter returns the configuration of a ServiceAccount that may do what every
// recorder needs today, in one namespace.
func reporter(t *testing.T, c *testenv.ControlPlane, namespace string) *rest.Config {
	t.Helper()
	config := c.ServiceAccount(t, namespace, "reporter")
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	_, err = client.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "reporter"},
		Rules:      []rbacv1.PolicyRule{{APIGroups: []string{"", "events.k8s.io"}, Resources: []string{"events"}, Verbs: []string{"create", "patch"}}},
	}, metav1.CreateOptions{})
	_, bindErr := client.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "reporter"},
		RoleRef:    rbacv1.RoleRef{Kind: "Role", Name: "reporter"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: namespace, Name: "reporter"}},
	}, metav1.CreateOptions{})
	if err := errors.Join(err, bindErr); err != nil {
		t.Fatal(err)
	}
	waitAllowed(t, c, "system:serviceaccount:"+namespace+":reporter", authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "patch", Group: "events.k8s.io", Resource: "events", Namespace: namespace},
	})
	return config
}

// stored lists the Events of a namespace, by the names of their objects.
func stored(t *testing.T, c *testenv.ControlPlane, namespace string) map[string][]corev1.Event {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	list, err := client.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]corev1.Event{}
	for _, e := range list.Items {
		out[e.InvolvedObject.Name] = append(out[e.InvolvedObject.Name], e)
	}
	return out
}

// wantStored checks that each object has one Event with its count.
func wantStored(t *testing.T, c *testenv.ControlPlane, namespace string, counts map[string]int) {
	t.Helper()
	got := stored(t, c, namespace)
	for object, want := range counts {
		events := got[object]
		if len(events) != 1 {
			t.Errorf("%s has %d Events, want 1", object, len(events))
			continue
		}
		if n := count(&events[0]); n != want {
			t.Errorf("%s has a count of %d, want %d", object, n, want)
		}
	}
	if len(got) != len(counts) {
		t.Errorf("%d objects have Events, want %d", len(got), len(counts))
	}
}

// count is what a reader of an Event takes for its count.
func count(e *corev1.Event) int {
	switch {
	case e.Series != nil:
		return int(e.Series.Count)
	case !e.EventTime.IsZero():
		return 1
	default:
		return int(e.Count)
	}
}

// group runs functions at once and waits for them.
func group(n int, f func(i int)) {
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { f(i) })
	}
	wg.Wait()
}

// bounded is the test's context with the deadline of all waits.
func bounded(t *testing.T) (context.Context, context.CancelFunc) {
	return context.WithTimeout(t.Context(), deadline)
}
