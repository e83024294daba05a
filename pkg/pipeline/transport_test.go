package pipeline

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/sink"
)

// hanging is a client configuration, a part of which does not return.
type hanging struct {
	config  *rest.Config
	entered func() bool // it was called
	release func()      // makes it return
}

// plugin is a program that ignores signals while a file exists. client-go runs it without a
// context.
const plugin = `#!/bin/sh
trap '' HUP INT TERM
: > "$1/entered"
while [ -e "$1/hangs" ]; do sleep 0.05; done
echo '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"late"}}'
`

// hangingPlugin returns a configuration with an exec credential plugin.
func hangingPlugin(t *testing.T, server *httptest.Server) hanging {
	t.Helper()
	dir := t.TempDir()
	command, kubeconfig := filepath.Join(dir, "plugin"), filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(command, []byte(plugin), 0o700); err != nil {
		t.Fatal(err)
	}
	hangs := filepath.Join(dir, "hangs")
	if err := os.WriteFile(hangs, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	err := clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters:       map[string]*clientcmdapi.Cluster{"c": {Server: server.URL, CertificateAuthorityData: certificate}},
		Contexts:       map[string]*clientcmdapi.Context{"c": {Cluster: "c", AuthInfo: "u"}},
		CurrentContext: "c",
		AuthInfos: map[string]*clientcmdapi.AuthInfo{"u": {Exec: &clientcmdapi.ExecConfig{
			APIVersion: "client.authentication.k8s.io/v1", Command: command, Args: []string{dir},
			InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		}}},
	}, kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	return hanging{
		config: config,
		entered: func() bool {
			_, err := os.Stat(filepath.Join(dir, "entered"))
			return err == nil
		},
		release: func() {
			if err := os.Remove(hangs); err != nil {
				t.Error(err)
			}
		},
	}
}

// hangingIn returns a configuration, changed so that a part of it calls wait.
func hangingIn(change func(config *rest.Config, wait func())) func(*testing.T, *httptest.Server) hanging {
	return func(_ *testing.T, server *httptest.Server) hanging {
		var entered atomic.Bool
		never := make(chan struct{})
		config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
		change(config, func() {
			entered.Store(true)
			<-never
		})
		return hanging{config, entered.Load, func() { close(never) }}
	}
}

// roundTripper is a custom http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endless is a body whose Read and Close do not return.
type endless struct{ wait func() }

func (e endless) Read([]byte) (int, error) { e.wait(); return 0, io.ErrUnexpectedEOF }
func (e endless) Close() error             { e.wait(); return nil }

var errHung = errors.New("it hung")

var transports = map[string]func(*testing.T, *httptest.Server) hanging{
	"exec plugin": hangingPlugin,
	"wrapped round tripper": hangingIn(func(c *rest.Config, wait func()) {
		c.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(r *http.Request) (*http.Response, error) {
				wait() // as a token source without a context does
				return next.RoundTrip(r)
			})
		})
	}),
	"transport": hangingIn(func(c *rest.Config, wait func()) {
		c.TLSClientConfig = rest.TLSClientConfig{}
		c.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
			wait()
			return nil, errHung
		})
	}),
	"response body": hangingIn(func(c *rest.Config, wait func()) {
		c.TLSClientConfig = rest.TLSClientConfig{}
		c.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Content-Type": {"application/json"}}
			return &http.Response{StatusCode: http.StatusCreated, Header: header, Body: endless{wait}}, nil
		})
	}),
	"dial": hangingIn(func(c *rest.Config, wait func()) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) {
			wait()
			return nil, errHung
		}
	}),
	"proxy": hangingIn(func(c *rest.Config, wait func()) {
		c.Proxy = func(*http.Request) (*url.URL, error) {
			wait()
			return nil, errHung
		}
	}),
}

// recording is an assembly that writes with a client configuration.
type recording struct {
	drainer
	totals func() ledger.Totals
	record func(pod *corev1.Pod)
}

var assemblies = map[string]func(*testing.T, *rest.Config) recording{
	"Pipeline": func(t *testing.T, config *rest.Config) recording {
		p, err := New(t.Context(), DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		client, err := sink.NewClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		if err := p.StartSink(client); err != nil {
			t.Fatal(err)
		}
		r := p.NewRecorder(scheme.Scheme, source)
		return recording{shutdownOf{p}, p.Totals, func(pod *corev1.Pod) { r.Event(pod, "Normal", "Tested", "") }}
	},
	"RecordBroadcaster": func(_ *testing.T, config *rest.Config) recording {
		b, r := recordTo(&typedcorev1.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(config).CoreV1().Events("")})
		return recording{b, totalsOf(b.stations), func(pod *corev1.Pod) { r.Event(pod, "Normal", "Tested", "") }}
	},
	"EventsBroadcaster": func(t *testing.T, config *rest.Config) recording {
		b := NewEventsBroadcaster(&events.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(config).EventsV1()})
		startEvents(t, b)
		r := b.NewRecorder(scheme.Scheme, "controller")
		return recording{b, totalsOf(b.stations), func(pod *corev1.Pod) { r.Eventf(pod, nil, "Normal", "Tested", "Testing", "") }}
	},
}

func totalsOf(s *stations) func() ledger.Totals {
	return func() ledger.Totals { return ledgers(s)[0] }
}

// Parts of a client configuration may ignore the context of a request.
func TestShutdownIsBoundedWhateverTheTransportDoes(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		for part, hangingPart := range transports {
			for assembly, assemble := range assemblies {
				t.Run(part+" of a "+assembly, func(t *testing.T) {
					t.Parallel()
					limit := 100 * time.Millisecond
					if part == "exec plugin" {
						limit = 2 * time.Second
					}
					shutdownWithin(t, limit, hangingPart, assemble)
				})
			}
		}
	})
	eventually(t, "the goroutines of all calls end", func() bool { return !mentionsCalls() })
}

func shutdownWithin(t *testing.T, limit time.Duration, hangingPart func(*testing.T, *httptest.Server) hanging, assemble func(*testing.T, *rest.Config) recording) {
	const recorded = 100
	server := httptest.NewTLSServer(http.NotFoundHandler())
	t.Cleanup(server.Close)
	h := hangingPart(t, server)
	t.Cleanup(h.release)
	r := assemble(t, h.config)
	for i := range recorded {
		r.record(podIn("ns", fmt.Sprint("web-", i)))
	}
	eventually(t, "it is called", h.entered)
	// The exact limit is tested in synctest bubbles; here the machine may be busy.
	wantShutdownWithin(t, r, limit, limit+3*shutdownLimit)
	if totals := r.totals(); totals.Recorded != recorded || totals.Pending() != 0 || totals.Written() != 0 {
		t.Errorf("ledger %+v", totals)
	}
}

// mentionsCalls reports whether a goroutine runs a request of a sink.
func mentionsCalls() bool {
	stacks := make([]byte, 4<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "pkg/sink.(*worker)")
}
