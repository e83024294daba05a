package client_test

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/servertest"
)

// answer is what the servers of these tests answer.
var answer = servertest.Answers{"status": v1alpha1.PipelineStatus{Replica: v1alpha1.Replica{Identity: servertest.Identity}}}

func newClient(t *testing.T, config *rest.Config, change func(*client.Options)) *client.Client {
	t.Helper()
	options := client.DefaultOptions()
	if change != nil {
		change(&options)
	}
	c, err := client.New(config, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func get(t *testing.T, c *client.Client) error {
	t.Helper()
	var status v1alpha1.PipelineStatus
	err := c.Get(t.Context(), "status", nil, &status)
	if err == nil && status.Replica.Identity != servertest.Identity {
		t.Errorf("got %+v", status)
	}
	return err
}

func TestTheLeaderOfTheLeaseGetsTheQueryAndTheToken(t *testing.T) {
	cluster, eventd := servertest.NewAPIServer(t), servertest.NewEventd(t, answer)
	cluster.Lead(eventd)
	for _, connect := range []string{client.ConnectAuto, client.ConnectDirect, client.ConnectForward} {
		c := newClient(t, cluster.REST(), func(o *client.Options) { o.Connect = connect })
		if err := get(t, c); err != nil {
			t.Fatalf("%s: %v", connect, err)
		}
		requests := eventd.Requests()
		last := requests[len(requests)-1]
		if got := last.Header.Get("Authorization"); got != "Bearer "+servertest.Token {
			t.Errorf("%s: Authorization is %q", connect, got)
		}
		if last.URL.Path != "/apis/query.eventd.io/v1alpha1/status" || last.ProtoMajor != 2 {
			t.Errorf("%s: %s %s", connect, last.Proto, last.URL)
		}
	}
}

func TestNothingIsSentToAServerWithAnotherCertificate(t *testing.T) {
	for _, connect := range []string{client.ConnectDirect, client.ConnectForward} {
		cluster, eventd := servertest.NewAPIServer(t), servertest.NewEventd(t, answer)
		cluster.Announce(eventd.Address(), strings.Repeat("0", 64))
		c := newClient(t, cluster.REST(), func(o *client.Options) { o.Connect = connect })
		err := get(t, c)
		if err == nil || !strings.Contains(err.Error(), "nothing was sent to it, since its certificate is not the one that is announced") {
			t.Errorf("%s: got %v", connect, err)
		}
		if n := len(eventd.Requests()); n != 0 {
			t.Errorf("%s: %d requests arrived", connect, n)
		}
	}
}

func TestTheCertificateCanBeVerifiedByAnAuthorityInstead(t *testing.T) {
	cluster, eventd := servertest.NewAPIServer(t), servertest.NewEventd(t, answer)
	cluster.Announce(eventd.Address(), strings.Repeat("0", 64)) // not used then
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(c *x509.Certificate) {
		if err := os.WriteFile(file, servertest.PEM(c), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(eventd.Certificate())
	for name, want := range map[string]bool{"": true, "example.com": true, "other.example": false} {
		c := newClient(t, cluster.REST(), func(o *client.Options) { o.CertificateAuthority, o.ServerName = file, name })
		if err := get(t, c); (err == nil) != want {
			t.Errorf("server name %q: got %v", name, err)
		}
	}
	before := len(eventd.Requests())
	other := otherAuthority(t)
	write(other)
	c := newClient(t, cluster.REST(), func(o *client.Options) { o.CertificateAuthority = file })
	if err := get(t, c); err == nil || len(eventd.Requests()) != before {
		t.Errorf("a certificate of another authority: got %v, and %d requests", err, len(eventd.Requests())-before)
	}
}

// The credentials are for one server. Over a connection to eventd a redirect would only lead back to it, but a
// kube-apiserver could send the caller's token anywhere.
func TestARedirectIsNotFollowed(t *testing.T) {
	elsewhere := servertest.NewEventd(t, answer)
	cluster := servertest.NewAPIServer(t)
	for _, target := range []string{elsewhere.URL, "http://" + elsewhere.Address()} {
		queries := http.NewServeMux()
		queries.Handle("/apis/", http.RedirectHandler(target, http.StatusTemporaryRedirect))
		redirecting := servertest.NewEventd(t, queries)
		cluster.Lead(redirecting)
		apiserver := &rest.Config{Host: redirecting.URL, BearerToken: servertest.Token, TLSClientConfig: rest.TLSClientConfig{CAData: servertest.PEM(redirecting.Certificate())}}
		for connect, config := range map[string]*rest.Config{client.ConnectAuto: cluster.REST(), client.ConnectAPIServer: apiserver} {
			before := len(redirecting.Requests())
			if err := get(t, newClient(t, config, func(o *client.Options) { o.Connect = connect })); err == nil {
				t.Errorf("%s, %s: no error", connect, target)
			}
			if n := len(redirecting.Requests()) - before; n != 1 {
				t.Errorf("%s, %s: %d requests arrived", connect, target, n)
			}
		}
	}
	if n := len(elsewhere.Requests()); n != 0 {
		t.Errorf("%d requests arrived elsewhere", n)
	}
}

func TestWhatIsMissingIsNamed(t *testing.T) {
	eventd, long := servertest.NewEventd(t, answer), time.Now().Add(-47*time.Minute)
	for _, test := range []struct {
		name    string
		prepare func(*servertest.APIServer)
		change  func(*client.Options)
		want    string
	}{
		{"no Lease", func(*servertest.APIServer) {}, nil, "there is no Lease kube-system/eventd of eventd in this cluster"},
		{"no announcement", func(a *servertest.APIServer) { a.Announce(":", "") }, nil, "announces no address or certificate"},
		{"no Pod", func(a *servertest.APIServer) { a.Lead(eventd); a.RemovePod() },
			func(o *client.Options) { o.Connect = client.ConnectForward }, "there is no Pod eventd-0, nor one of eventd with the address 127.0.0.1"},
		{"closed port", func(a *servertest.APIServer) { a.Announce("127.0.0.1:1", eventd.Fingerprint()) },
			func(o *client.Options) { o.Connect = client.ConnectForward }, "an error occurred forwarding to port 1: "},
		// As of a leader whose node has died.
		{"no connection", func(a *servertest.APIServer) {
			a.Announce("127.0.0.1:1", eventd.Fingerprint())
			a.Renew("eventd", long)
		}, nil,
			"connecting to eventd, which holds the Lease kube-system/eventd, last renewed 47m ago: dial tcp"},
		{"no handshake", func(a *servertest.APIServer) {
			a.Announce("127.0.0.1:1", eventd.Fingerprint())
			a.Renew("eventd", long)
		},
			func(o *client.Options) { o.Connect = client.ConnectForward }, "the Lease kube-system/eventd, last renewed 47m ago (" + servertest.Identity + " at 127.0.0.1:1): "},
		{"clock of another", func(a *servertest.APIServer) {
			a.Announce("127.0.0.1:1", eventd.Fingerprint())
			a.Renew("eventd", time.Now().Add(time.Minute))
		}, nil,
			"last renewed 0s ago: dial tcp"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cluster := servertest.NewAPIServer(t)
			test.prepare(cluster)
			err := get(t, newClient(t, cluster.REST(), test.change))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, not %q", err, test.want)
			}
		})
	}
}

// An error says less if the Lease cannot be read again, and does not wait for it.
func TestAnErrorDoesNotWaitForTheLease(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	cluster.Announce("127.0.0.1:1", "none")
	answered, reads := cluster.Config.Handler, atomic.Int32{}
	cluster.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Contains(req.URL.Path, "/leases/") && reads.Add(1) > 1 {
			<-req.Context().Done()
			return
		}
		answered.ServeHTTP(w, req)
	})
	ctx, cancel := context.WithTimeout(t.Context(), await.Timeout)
	defer cancel()
	err := newClient(t, cluster.REST(), nil).Get(ctx, "status", nil, new(any))
	if err == nil || !strings.HasPrefix(err.Error(), "connecting to eventd, which holds the Lease kube-system/eventd: dial") || reads.Load() != 2 {
		t.Errorf("got %v after %d reads", err, reads.Load())
	}
}

func TestImpersonationIsRefused(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	for _, i := range []rest.ImpersonationConfig{{UserName: "jane"}, {Groups: []string{"g"}}, {UID: "1"}, {Extra: map[string][]string{"a": {"b"}}}} {
		config := cluster.REST()
		config.Impersonate = i
		if _, err := client.New(config, client.DefaultOptions()); err == nil || !strings.Contains(err.Error(), "--as") {
			t.Errorf("%+v: got %v", i, err)
		}
		options := client.DefaultOptions()
		options.Connect = client.ConnectAPIServer // passes it on
		c, err := client.New(config, options)
		if err != nil {
			t.Fatalf("%+v by the apiserver: %v", i, err)
		}
		c.Close()
	}
}

func TestTheAggregatedAPIIsTheSameAPI(t *testing.T) {
	apiserver := servertest.NewEventd(t, answer)
	config := &rest.Config{Host: apiserver.URL, BearerToken: servertest.Token, TLSClientConfig: rest.TLSClientConfig{CAData: servertest.PEM(apiserver.Certificate())}}
	config.Impersonate.UserName = "jane"
	c := newClient(t, config, func(o *client.Options) { o.Connect = client.ConnectAPIServer })
	if err := get(t, c); err != nil {
		t.Fatal(err)
	}
	req := apiserver.Requests()[0]
	if req.URL.Path != "/apis/query.eventd.io/v1alpha1/status" || req.Header.Get("Impersonate-User") != "jane" || req.Header.Get("Authorization") != "Bearer "+servertest.Token {
		t.Errorf("got %s, %v", req.URL, req.Header)
	}
}

func TestAQueryIsSentAgainWhenEventdAsksForIt(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	attempts := 0
	cluster.Lead(servertest.NewEventd(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if attempts++; attempts == 1 {
			w.Header().Set("Retry-After", "1")
			servertest.WriteJSON(w, http.StatusServiceUnavailable, servertest.Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "no leader"))
			return
		}
		answer.ServeHTTP(w, req)
	})))
	if err := get(t, newClient(t, cluster.REST(), nil)); err != nil || attempts != 2 {
		t.Errorf("got %v after %d attempts", err, attempts)
	}
}

func TestErrorsAreThoseOfTheAPI(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	for _, test := range []struct {
		handler http.Handler
		is      func(error) bool
	}{
		{servertest.Refuse(http.StatusForbidden, metav1.StatusReasonForbidden, "events is forbidden"), apierrors.IsForbidden},
		{servertest.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"), apierrors.IsUnauthorized},
		{servertest.Answers{}, apierrors.IsNotFound},
		{http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "no", http.StatusServiceUnavailable) }), apierrors.IsServiceUnavailable},
	} {
		cluster.Lead(servertest.NewEventd(t, test.handler))
		if err := get(t, newClient(t, cluster.REST(), nil)); !test.is(err) {
			t.Errorf("got %v", err)
		}
	}
}

// A server that accepts connections and never answers holds nobody up for longer than it is asked.
func TestTheTimeOfARequestIsBounded(t *testing.T) {
	cluster := servertest.NewAPIServer(t)
	released := make(chan struct{})
	defer close(released)
	cluster.Lead(servertest.NewEventd(t, http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		select {
		case <-released:
		case <-req.Context().Done():
		}
	})))
	config := cluster.REST()
	config.Timeout = 1 // a nanosecond: the connection is not made in it
	for _, connect := range []string{client.ConnectAuto, client.ConnectAPIServer} {
		if err := get(t, newClient(t, config, func(o *client.Options) { o.Connect = connect })); err == nil || !strings.Contains(err.Error(), "--request-timeout") {
			t.Errorf("%s: got %v", connect, err)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	c := newClient(t, cluster.REST(), nil)
	done := make(chan error)
	go func() { done <- c.Get(ctx, "status", nil, new(any)) }()
	cause := fmt.Errorf("the test has seen enough")
	cancel(cause)
	if err := <-done; !errors.Is(err, cause) {
		t.Errorf("got %v", err)
	}
}
