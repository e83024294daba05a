package hostile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// target is a server that is attacked.
type target struct {
	name    string
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
	r := replica.Run(t, c, replica.Options{Credentials: credentials, Flags: append([]string{"--leader-elect=false"}, flags...)})
	return &target{name: "eventd", cluster: c, config: r.Config, pid: r.PID, eventd: r}
}

// apiserverTarget is the kube-apiserver itself, with etcd in the same process.
func apiserverTarget(t *testing.T) *target {
	t.Helper()
	c := testenv.Shared(t)
	g := &target{name: "kube-apiserver", cluster: c, pid: c.PID}
	g.config = func(credentials *rest.Config) *rest.Config { return direct(g, credentials) }
	return g
}

// account returns a client of the target: a new account with the given rights on the
// Events of a new namespace.
func (g *target) account(t *testing.T, name string, verbs ...string) *account {
	t.Helper()
	namespace := g.cluster.Namespace(t)
	return g.accountIn(t, namespace, name, verbs...)
}

func (g *target) accountIn(t *testing.T, namespace, name string, verbs ...string) *account {
	t.Helper()
	config := g.config(replica.Account(t, g.cluster, namespace, name, verbs...))
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &account{config: config, client: client, namespace: namespace}
}

// account is a client with the credentials of one account.
type account struct {
	config    *rest.Config
	client    *http.Client
	namespace string
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
	pool := x509.NewCertPool()
	data := a.config.CAData
	if len(data) == 0 {
		var err error
		if data, err = os.ReadFile(a.config.CAFile); err != nil {
			t.Fatal(err)
		}
	}
	if !pool.AppendCertsFromPEM(data) {
		t.Fatal("the target's CA has no certificate")
	}
	return &tls.Config{RootCAs: pool, ServerName: a.config.ServerName, NextProtos: []string{protocol}}
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

// attempt is the answer to one request.
type attempt struct {
	code int
	body string
	err  error
}

// do makes a request and reads the answer.
func (a *account) do(ctx context.Context, method, url, contentType, body string) attempt {
	req, err := http.NewRequestWithContext(ctx, method, url, strings.NewReader(body))
	if err != nil {
		return attempt{err: err}
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	return send(a.client, req)
}

// anonymous is a client of the same target without credentials, from an address that
// the victim does not use.
func (a *account) anonymous(t *testing.T) *account {
	t.Helper()
	return a.anonymousFrom(t, "127.0.0.66")
}

func (a *account) anonymousFrom(t *testing.T, address string) *account {
	t.Helper()
	config := rest.AnonymousClientConfig(a.config)
	config.Dial = (&net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}}).DialContext
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return &account{config: config, client: client, namespace: a.namespace}
}

// doAs posts an Event with a token.
func (a *account) doAs(ctx context.Context, token, event string) attempt {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, a.events(), strings.NewReader(event))
	if err != nil {
		return attempt{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Authorization", "Bearer "+token)
	return send(a.client, req)
}
