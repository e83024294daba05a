package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
	"github.com/eventd/eventd/test/testenv"
)

// Certificate files are looked at this often, and not every five minutes. It is
// much longer than a handshake takes: client-go v0.36 reads the certificate that
// it has without its lock, which is a race if the first handshake has not ended
// by the second look.
func init() { transport.CertCallbackRefreshDuration = 2 * time.Second }

func connect(t *testing.T, config *rest.Config) *Client {
	t.Helper()
	client, err := NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// create creates an Event with a name that the apiserver chooses.
func create(ctx context.Context, client *Client, api occurrence.API, namespace string) (*corev1.Event, error) {
	event := sinktest.Event(api == occurrence.EventsV1)
	event.Namespace, event.InvolvedObject.Namespace, event.GenerateName = namespace, namespace, "e-"
	event.ReportingController, event.ReportingInstance, event.Action = "example.com/test", "test-0", "Testing"
	return client.Create(ctx, api, event)
}

// clientFor returns a client over client-go's connections.
func clientFor(t *testing.T, config *rest.Config) *Client {
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return New(clients.CoreV1().RESTClient(), clients.EventsV1().RESTClient())
}

var (
	eventsResource = schema.GroupResource{Resource: "events"}
	errLost        = errors.New("connection lost")
)

func TestConnectionsAreSharedWithNobody(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	network, config := sinktest.Forward(t, testenv.Shared(t).Config())
	shared := func(t *testing.T) *Client { // as close to ours as client-go's can be
		config := rest.CopyConfig(config)
		config.DisableCompression = true
		return clientFor(t, config)
	}
	own := func(t *testing.T) *Client { return connect(t, config) }
	ownSet := func(t *testing.T) *Client { return clientFor(t, ConfigFor(config)) }
	var clients []*Client // client-go shares a transport while somebody has it
	for _, step := range []struct {
		name        string
		client      func(*testing.T) *Client
		connections int64
	}{
		{"client-go's", shared, 1},
		{"client-go's, again", shared, 1},
		{"ours", own, 3},
		{"ours, again", own, 5},
		{"a set of clients", ownSet, 6},
		{"a set of clients, again", ownSet, 7},
		{"client-go's, at last", shared, 7},
	} {
		client := step.client(t)
		clients = append(clients, client)
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1, occurrence.CoreV1} {
			if _, err := create(t.Context(), client, api, namespace); err != nil {
				t.Fatal(err)
			}
		}
		if got := network.Accepted.Load(); got != step.connections {
			t.Errorf("%s: %d connections in all, want %d", step.name, got, step.connections)
		}
	}
	runtime.KeepAlive(clients)
}

// If one connection can be made, what was to go over the other has its answer over
// that, and the sink hears of no failure, after which everything would pause.
func TestRequestWhoseConnectionIsRefusedGoesOverTheOther(t *testing.T) {
	for name, wrap := range map[string]transport.WrapperFunc{
		"by itself": nil,
		"in a wrapper that does not show what it wraps": func(rt http.RoundTripper) http.RoundTripper { return opaque{rt} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, dials := sinktest.DialOnce(testenv.Shared(t).Config(), func() error {
				return &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
			})
			config.Wrap(wrap)
			client, namespace := connect(t, config), testenv.Shared(t).Namespace(t)
			for i := range 4 {
				if _, err := create(t.Context(), client, occurrence.CoreV1, namespace); err != nil {
					t.Errorf("request %d: %v", i+1, err)
				}
			}
			if n := dials.Load(); n < 2 {
				t.Errorf("%d connections were tried, want one that was refused", n)
			}
		})
	}
}

// exchange is what a server saw of a request and of its answer.
type exchange struct{ contentType, accept, acceptEncoding, answered string }

// observe puts a server before the apiserver, which changes requests and says
// what it saw.
func observe(t *testing.T, config *rest.Config, change func(*http.Request)) (*rest.Config, <-chan exchange) {
	t.Helper()
	backend, err := url.Parse(config.Host)
	if err != nil {
		t.Fatal(err)
	}
	rt, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	seen := make(chan exchange, 10)
	server := httptest.NewUnstartedServer(&httputil.ReverseProxy{
		Transport: rt,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(backend)
			change(r.Out)
		},
		ModifyResponse: func(r *http.Response) error {
			// The request as it came in, but for what is changed here.
			h := r.Request.Header
			seen <- exchange{h.Get("Content-Type"), h.Get("Accept"), h.Get("Accept-Encoding"), r.Header.Get("Content-Type")}
			return nil
		},
	})
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, seen
}

func TestBodiesAreProtobufAndPatchesJSON(t *testing.T) {
	const protobuf, patch = "application/vnd.kubernetes.protobuf", "application/strategic-merge-patch+json"
	const either = protobuf + ",application/json"
	namespace := testenv.Shared(t).Namespace(t)
	config, seen := observe(t, testenv.Shared(t).Config(), func(*http.Request) {})
	client := connect(t, config)
	for _, apiGroup := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		event, err := create(t.Context(), client, apiGroup, namespace)
		if err != nil {
			t.Fatal(err)
		}
		if got, want := <-seen, (exchange{protobuf, either, "", protobuf}); got != want {
			t.Errorf("a create is %+v, want %+v", got, want)
		}
		if _, err := client.Patch(t.Context(), apiGroup, namespace, event.Name, []byte("{}")); err != nil {
			t.Fatal(err)
		}
		if got, want := <-seen, (exchange{patch, either, "", protobuf}); got != want {
			t.Errorf("a patch is %+v, want %+v", got, want)
		}
	}
}

func TestAnswersInJSONAreUnderstood(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	config, seen := observe(t, testenv.Shared(t).Config(), func(r *http.Request) { r.Header.Set("Accept", "application/json") })
	event, err := create(t.Context(), connect(t, config), occurrence.CoreV1, namespace)
	if err != nil || event.Reason != "Pulled" {
		t.Errorf("%+v, %v", event, err)
	}
	if got := <-seen; got.answered != "application/json" {
		t.Errorf("the answer was %s", got.answered)
	}
}

func TestTokenFileThatChangesIsFollowedWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		writeFile(t, file, []byte("first"))
		config := &rest.Config{Host: "https://127.0.0.1", BearerTokenFile: file}
		var shown string
		config.Wrap(func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				shown = r.Header.Get("Authorization")
				return nil, errLost
			})
		})
		client := connect(t, config)
		for _, token := range []string{"first", "second"} {
			writeFile(t, file, []byte(token))
			time.Sleep(time.Minute)
			if _, err := create(t.Context(), client, occurrence.CoreV1, "ns"); !errors.Is(err, errLost) || shown != "Bearer "+token {
				t.Errorf("%v, with %q, want %s", err, shown, token)
			}
		}
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The apiserver asks for a certificate once in a connection, so this needs a new
// one. What follows the files ends with the client.
func TestClientCertificateFileThatChangesIsFollowed(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	network, admin := sinktest.Forward(t, testenv.Shared(t).Config())
	config := rest.AnonymousClientConfig(admin)
	dir := t.TempDir()
	config.CertFile, config.KeyFile = filepath.Join(dir, "crt"), filepath.Join(dir, "key")
	unknown, key, err := cert.GenerateSelfSignedCertKey("unknown", nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, config.CertFile, unknown)
	writeFile(t, config.KeyFile, key)
	client := connect(t, config)

	if _, err := create(t.Context(), client, occurrence.CoreV1, namespace); !apierrors.IsUnauthorized(err) {
		t.Fatalf("with an unknown certificate: %v", err)
	}
	writeFile(t, config.CertFile, admin.CertData)
	writeFile(t, config.KeyFile, admin.KeyData)
	sinktest.Eventually(t, func() error {
		_, err := create(t.Context(), client, occurrence.CoreV1, namespace)
		return err
	})
	if got := network.Accepted.Load(); got < 2 {
		t.Errorf("%d connections were made", got)
	}
	if !rotationRuns(t) {
		t.Fatal("nothing follows the files")
	}
	client = nil
	sinktest.Eventually(t, func() error {
		runtime.GC()
		if rotationRuns(t) {
			return errors.New("the files are still followed")
		}
		return nil
	})
}

func rotationRuns(t *testing.T) bool {
	var stacks strings.Builder
	if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(stacks.String(), "transport.(*dynamicClientCert)")
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	// In one step: a certificate and its key are two files already.
	if err := errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// An apiserver takes 100 requests at once on one HTTP/2 connection. None waits
// for the others to be answered, and the connections are there the next time.
func TestMoreRequestsAreInFlightThanOneConnectionTakes(t *testing.T) {
	const requests = 128
	for _, test := range []struct {
		protocols   []string
		connections int64 // that stay open
		made        int64 // at most
	}{
		{nil, 2, requests / 2},
		{[]string{"http/1.1"}, requests, requests},
	} {
		t.Run(fmt.Sprint(test.protocols), func(t *testing.T) {
			namespace := testenv.Shared(t).Namespace(t)
			crowd := gather(t, namespace, requests)
			network, config := sinktest.Forward(t, testenv.Shared(t).Config())
			config.NextProtos = test.protocols
			client := connect(t, config)
			ask := func(ctx context.Context) error {
				_, err := create(ctx, client, occurrence.CoreV1, namespace)
				return err
			}

			crowd.expect()
			atOnce(t, requests, ask)
			// net/http makes a connection for each request that finds the first one
			// full, and closes what turns out not to be needed.
			sinktest.Eventually(t, func() error {
				if got := network.Open.Load(); got != test.connections {
					return fmt.Errorf("%d connections are open, want %d", got, test.connections)
				}
				return nil
			})
			made := network.Accepted.Load()
			if made > test.made {
				t.Errorf("%d connections were made, want at most %d", made, test.made)
			}
			t.Logf("%d connections were made", made)
			crowd.expect()
			atOnce(t, requests, ask)
			if got := network.Accepted.Load(); got != made {
				t.Errorf("%d more connections were made for as many requests again", got-made)
			}
		})
	}
}

func atOnce(t *testing.T, n int, do func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	for range n {
		wg.Go(func() {
			if err := do(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}
