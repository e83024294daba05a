package hostile

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/request"
	"github.com/eventd/eventd/test/testenv"
)

// target is a server that is attacked.
type target struct {
	cluster *testenv.ControlPlane
	config  func(credentials *rest.Config) *rest.Config
	pid     func() int
	eventd  *replica.Replica // nil if the target is the kube-apiserver
}

// eventdTarget starts the binary as the ServiceAccount of deploy/.
func eventdTarget(t *testing.T, flags ...string) *target {
	t.Helper()
	c := testenv.Shared(t)
	return startEventd(t, c, replica.Deploy(t, c), flags...)
}

// startEventd starts the binary with credentials for the apiserver, or for a proxy in
// front of it.
func startEventd(t *testing.T, c *testenv.ControlPlane, credentials *rest.Config, flags ...string) *target {
	t.Helper()
	r := start(t, c, replica.Options{Credentials: credentials, Flags: append([]string{"--leader-elect=false", fmt.Sprint("--max-request-body-bytes=", maxBody)}, flags...)})
	return &target{cluster: c, config: r.Config, pid: r.PID, eventd: r}
}

// maxBody is the largest body that the intake of deploy/ takes.
const maxBody = 128 << 10

// limitMiB and softLimit are those of the containers in deploy/.
const limitMiB, softLimit = 512, "GOMEMLIMIT=448MiB"

// start runs eventd with the limits of its memory in deploy/, whatever is done to it.
func start(t *testing.T, c *testenv.ControlPlane, o replica.Options) *replica.Replica {
	t.Helper()
	o.Env = append(o.Env, softLimit)
	r := replica.Run(t, c, o)
	t.Cleanup(func() { wantWithinLimit(t, r) })
	return r
}

// wantWithinLimit fails if a process has had more memory than its container may, unless it has ended.
func wantWithinLimit(t *testing.T, r *replica.Replica) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.PID()))
	if err != nil || !strings.Contains(string(status), "VmHWM:") {
		return
	}
	peak := peakMemory(t, r.PID())
	longrun.Report(t, "peak MiB: %.0f", peak)
	if peak > limitMiB {
		t.Errorf("%.0f MiB are more than the limit in deploy/", peak)
	}
}

// apiserverTarget is the kube-apiserver itself, with etcd in the same process.
func apiserverTarget(t *testing.T) *target {
	t.Helper()
	c := testenv.Shared(t)
	g := &target{cluster: c, pid: c.PID}
	g.config = g.direct
	return g
}

// direct is a client of the kube-apiserver with somebody's credentials.
func (g *target) direct(credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host = g.cluster.Config().Host
	return config
}

// metrics of eventd, read by the administrator.
func (g *target) metrics(t *testing.T) metrics.Metrics { return g.eventd.WantMetrics(t, g.cluster) }

// waitPendingSeries waits until the number of pending series satisfies a condition.
func (g *target) waitPendingSeries(t *testing.T, what string, ok func(pending float64) bool) {
	t.Helper()
	await.Until(t, what, func() bool { return ok(g.metrics(t).Sum("eventd_sink_pending_series")) })
}

// requestPatience is the timeout of an attacker's request.
const requestPatience = time.Second

// account returns a client of the target: a new account with the given rights on the
// Events of a new namespace.
func (g *target) account(t *testing.T, name string, verbs ...string) *account {
	t.Helper()
	namespace := g.cluster.Namespace(t)
	return g.accountIn(t, namespace, name, verbs...)
}

func (g *target) accountIn(t *testing.T, namespace, name string, verbs ...string) *account {
	t.Helper()
	return newAccount(t, g.config(replica.Account(t, g.cluster, namespace, name, verbs...)), namespace)
}

// account is a client with the credentials of one account.
type account struct {
	config    *rest.Config
	client    *http.Client
	namespace string
}

func newAccount(t *testing.T, config *rest.Config, namespace string) *account {
	t.Helper()
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &account{config: config, client: client, namespace: namespace}
}

// as is a client of another target with the same credentials.
func (a *account) as(t *testing.T, g *target) *account {
	t.Helper()
	return newAccount(t, g.config(a.config), a.namespace)
}

// anonymous is a client of the same target without credentials, from an address that
// the victim does not use, or from another one.
func (a *account) anonymous(t *testing.T, from ...string) *account {
	t.Helper()
	address := append(from, "127.0.0.66")[0]
	config := rest.AnonymousClientConfig(a.config)
	config.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	return newAccount(t, config, a.namespace)
}

// do makes a request and reads the answer.
func (a *account) do(ctx context.Context, method, url, body string, header ...string) request.Answer {
	return request.Do(ctx, a.client, method, url, body, header...)
}

// post posts an Event of a series of its own about an object.
func (a *account) post(ctx context.Context, object, eventType string) request.Answer {
	return a.postEvent(ctx, a.event(object, object, eventType, 1))
}

func (a *account) postEvent(ctx context.Context, event string, header ...string) request.Answer {
	return a.do(ctx, http.MethodPost, a.events(), event, header...)
}

// postAs posts an Event with a token.
func (a *account) postAs(ctx context.Context, token, event string) request.Answer {
	return a.postEvent(ctx, event, "Authorization", "Bearer "+token)
}

// mustPost posts an Event, and the answer must be one of some codes.
func (a *account) mustPost(t *testing.T, event string, codes ...int) {
	t.Helper()
	if got := a.postEvent(t.Context(), event); got.Err != nil || !slices.Contains(codes, got.Code) {
		t.Fatalf("an Event is answered %v, want %v", got, codes)
	}
}

// event is an Event with a name about a Pod.
func (a *account) event(name, pod, eventType string, count int) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Event","metadata":{"name":%q,"namespace":%q},`+
		`"involvedObject":{"kind":"Pod","namespace":%q,"name":%q},"reason":"Tested","message":"said of %s","type":%q,`+
		`"source":{"component":"tester"},"firstTimestamp":"2026-01-02T03:04:05Z","lastTimestamp":"2026-01-02T03:04:05Z","count":%d}`,
		name, a.namespace, a.namespace, pod, pod, eventType, count)
}

// events is the URL of the Events of the namespace in core/v1, or of a named one.
func (a *account) events(name ...string) string {
	return a.config.Host + "/api/v1/namespaces/" + a.namespace + "/" + strings.Join(append([]string{"events"}, name...), "/")
}

// hostPort is the address of the target.
func (a *account) hostPort() string {
	u, err := url.Parse(a.config.Host)
	if err != nil {
		panic(err)
	}
	return u.Host
}

// tlsConfig trusts the target, and speaks the given protocol.
func (a *account) tlsConfig(t *testing.T, protocol string) *tls.Config {
	t.Helper()
	config, err := rest.TLSConfigFor(a.config)
	if err != nil {
		t.Fatal(err)
	}
	config.NextProtos = []string{protocol}
	return config
}

// peakMemory is the most memory that a process has had since resetPeak, in MiB.
func peakMemory(t *testing.T, pid int) float64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if value, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 64)
			if err != nil {
				t.Fatal(err)
			}
			return kib / 1024
		}
	}
	t.Fatal("no VmHWM in the status of the process")
	return 0
}

// resetPeak resets the peak to the current memory.
func resetPeak(t *testing.T, pid int) {
	t.Helper()
	if err := os.WriteFile(fmt.Sprintf("/proc/%d/clear_refs", pid), []byte("5"), 0); err != nil {
		t.Fatal(err)
	}
}
