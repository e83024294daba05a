package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"runtime"
	"runtime/pprof"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"k8s.io/client-go/util/cert"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/sinktest"
	"github.com/eventd/eventd/test/testenv"
)

// Certificate files are read this often, and not every five minutes. It is
// much longer than a handshake takes: client-go v0.36 reads the certificate that
// it has without its lock, which is a race if the first handshake has not ended
// by the second look.
func init() { transport.CertCallbackRefreshDuration = 10 * time.Second }

// serveEvents starts a server that answers each request with an Event, after hold, and
// refuses to compress, which would cost an apiserver more than the network costs. It
// executes 100 requests at once on one HTTP/2 connection, as an apiserver does. It counts
// the connections made.
func serveEvents(t *testing.T, hold func(context.Context)) (config *rest.Config, made *atomic.Int64) {
	t.Helper()
	made = new(atomic.Int64)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		hold(r.Context())
		if encoding := r.Header.Get("Accept-Encoding"); encoding != "" {
			t.Errorf("a client accepts the encoding %q", encoding)
		}
		apiVersion := "v1"
		if strings.HasPrefix(r.URL.Path, "/apis/") {
			apiVersion = "events.k8s.io/v1"
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"kind":"Event","apiVersion":%q}`, apiVersion)
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			made.Add(1)
		}
	}
	server.EnableHTTP2, server.Config.HTTP2 = true, &http.HTTP2Config{MaxConcurrentStreams: 100}
	server.StartTLS()
	t.Cleanup(server.Close)
	return &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}, made
}

func TestConnectionsAreSharedWithNobody(t *testing.T) {
	config, made := serveEvents(t, func(context.Context) {})
	similar := rest.CopyConfig(config) // as close to ours as client-go's can be
	similar.DisableCompression = true
	shared := func() *Client { return clientFor(t, similar) }
	own := func() *Client { return connect(t, config) }
	ownSet := func() *Client { return clientFor(t, ConfigFor(config)) }
	var clients []*Client // client-go shares a transport while somebody has it
	for _, step := range []struct {
		name        string
		client      func() *Client
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
		client := step.client()
		clients = append(clients, client)
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1, occurrence.CoreV1} {
			if _, err := create(t.Context(), client, api, "ns"); err != nil {
				t.Fatal(err)
			}
		}
		if got := made.Load(); got != step.connections {
			t.Errorf("%s: %d connections in all, want %d", step.name, got, step.connections)
		}
	}
	runtime.KeepAlive(clients)
}

// If one connection can be made, requests that were to use the other use that, and the
// caller gets no error, after which all series would wait.
func TestRequestWhoseConnectionIsRefusedGoesOverTheOther(t *testing.T) {
	for name, wrap := range map[string]transport.WrapperFunc{
		"by itself": nil,
		"in a wrapper that does not show what it wraps": func(rt http.RoundTripper) http.RoundTripper { return opaque{rt} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			network := &sinktest.Network{Fail: func(dial int64) error {
				if dial > 1 {
					return errRefused
				}
				return nil
			}}
			config := network.Over(testenv.Shared(t).Config())
			config.Wrap(wrap)
			client, namespace := connect(t, config), testenv.Shared(t).Namespace(t)
			for i := range 4 {
				if _, err := create(t.Context(), client, occurrence.CoreV1, namespace); err != nil {
					t.Errorf("request %d: %v", i+1, err)
				}
			}
			if n := network.Dials.Load(); n < 2 {
				t.Errorf("%d dials, want one that was refused", n)
			}
		})
	}
}

// exchange is the content types of a request and of its answer.
type exchange struct{ contentType, accept, answered string }

func TestBodiesAreProtobufAndPatchesJSON(t *testing.T) {
	const protobuf, patch = "application/vnd.kubernetes.protobuf", "application/strategic-merge-patch+json"
	const either = protobuf + ",application/json"
	namespace := testenv.Shared(t).Namespace(t)
	var last exchange
	config := testenv.Shared(t).Config()
	config.Wrap(func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			response, err := rt.RoundTrip(r)
			if err == nil {
				last = exchange{r.Header.Get("Content-Type"), r.Header.Get("Accept"), response.Header.Get("Content-Type")}
			}
			return response, err
		})
	})
	client := connect(t, config)
	for _, apiGroup := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		event, err := create(t.Context(), client, apiGroup, namespace)
		if want := (exchange{protobuf, either, protobuf}); err != nil || last != want {
			t.Fatalf("a create is %+v, %v, want %+v", last, err, want)
		}
		_, err = client.Patch(t.Context(), apiGroup, namespace, event.Name, []byte("{}"))
		if want := (exchange{patch, either, protobuf}); err != nil || last != want {
			t.Errorf("a patch is %+v, %v, want %+v", last, err, want)
		}
	}
}

func TestTokenFileThatChangesIsFollowedWithinAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "token")
		writeFile(t, file, []byte("first"))
		config := &rest.Config{Host: "https://127.0.0.1", BearerTokenFile: file}
		var sent string
		config.Wrap(func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				sent = r.Header.Get("Authorization")
				return nil, errLost
			})
		})
		client := connect(t, config)
		for _, token := range []string{"first", "second"} {
			writeFile(t, file, []byte(token))
			time.Sleep(time.Minute)
			if _, err := create(t.Context(), client, occurrence.CoreV1, "ns"); !errors.Is(err, errLost) || sent != "Bearer "+token {
				t.Errorf("%v, with %q, want %s", err, sent, token)
			}
		}
	})
}

// The apiserver requests a certificate once in a connection, so this needs a new
// one. What follows the files ends with the client.
func TestClientCertificateFileThatChangesIsFollowed(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	var network sinktest.Network
	admin := testenv.Shared(t).Config()
	config := network.Over(rest.AnonymousClientConfig(admin))
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
	await.Until(t, "the client to use the new certificate", func() bool {
		_, err := create(t.Context(), client, occurrence.CoreV1, namespace)
		return err == nil
	})
	if n := network.Dials.Load(); n < 2 {
		t.Errorf("%d connections were made", n)
	}
	rotationRuns := func() bool {
		var stacks strings.Builder
		if err := pprof.Lookup("goroutine").WriteTo(&stacks, 1); err != nil {
			t.Fatal(err)
		}
		return strings.Contains(stacks.String(), "transport.(*dynamicClientCert)")
	}
	if !rotationRuns() {
		t.Fatal("nothing follows the files")
	}
	client = nil
	await.Until(t, "the end of what follows the files", func() bool {
		runtime.GC()
		return !rotationRuns()
	})
}

func writeFile(t *testing.T, path string, data []byte) {
	t.Helper()
	// In one step: a certificate and its key are two files already.
	if err := errors.Join(os.WriteFile(path+".new", data, 0o600), os.Rename(path+".new", path)); err != nil {
		t.Fatal(err)
	}
}

// crowd holds requests until there are as many of them at once as it expects.
type crowd struct {
	mu       sync.Mutex
	missing  int
	complete chan struct{}
}

func (c *crowd) expect(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missing, c.complete = n, make(chan struct{})
}

func (c *crowd) hold(ctx context.Context) {
	c.mu.Lock()
	if c.missing--; c.missing == 0 {
		close(c.complete)
	}
	complete := c.complete
	c.mu.Unlock()
	select {
	case <-complete:
	case <-ctx.Done():
	}
}

// None waits for the others to be answered, and the connections are there the next time.
func TestMoreRequestsAreInFlightThanOneConnectionTakes(t *testing.T) {
	const requests = 128
	for _, test := range []struct {
		protocols   []string
		first       int   // requests that are made before, each of which makes a connection
		connections int64 // that stay open, at most
		made        int64 // at most
	}{
		{nil, 2, 2, 2},
		// Requests go to the connection that is made. If the second takes longer to be made,
		// the first gets more than it takes, and the same transport makes a third one.
		{nil, 0, 3, requests / 2},
		{[]string{"http/1.1"}, 0, requests, requests},
	} {
		t.Run(fmt.Sprint(test.protocols, test.first), func(t *testing.T) {
			var c crowd
			config, _ := serveEvents(t, c.hold)
			var network sinktest.Network
			config = network.Over(config)
			config.NextProtos = test.protocols
			client := connect(t, config)
			createAtOnce := func(requests int) {
				c.expect(requests)
				ctx, cancel := await.Context(t)
				defer cancel()
				var wg sync.WaitGroup
				for range requests {
					wg.Go(func() {
						if _, err := create(ctx, client, occurrence.CoreV1, "ns"); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
			}

			for range test.first {
				createAtOnce(1)
			}
			createAtOnce(requests)
			// net/http makes a connection for each request that finds the first one
			// full, and closes what turns out not to be needed.
			await.Until(t, fmt.Sprint("at most ", test.connections, " connections to stay open"), func() bool {
				return network.Open.Load() <= test.connections
			})
			made := network.Dials.Load()
			if made > test.made {
				t.Errorf("%d connections were made, want at most %d", made, test.made)
			}
			t.Logf("%d connections were made", made)
			createAtOnce(requests)
			if got := network.Dials.Load(); got != made {
				t.Errorf("%d more connections were made for as many requests again", got-made)
			}
		})
	}
}
