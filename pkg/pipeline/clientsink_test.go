package pipeline

import (
	"context"
	"errors"
	"fmt"
	"math"
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
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
)

func TestSinkUsesHalfOfTheClientsRateLimit(t *testing.T) {
	unlimited := sink.DefaultOptions()
	unlimited.QPS = math.Inf(1)
	for name, test := range map[string]struct {
		qps       float32
		limiter   flowcontrol.RateLimiter
		wantQPS   float64
		wantBurst int
	}{
		"client-go's default": {0, nil, 2.5, 2},
		"a limit":             {40, nil, 20, 20},
		"no limit":            {-1, nil, math.Inf(1), unlimited.Burst},
		"a limiter for none":  {0, flowcontrol.NewFakeAlwaysRateLimiter(), math.Inf(1), unlimited.Burst},
		"a low limit":         {0.5, nil, 0.25, 1},
	} {
		t.Run(name, func(t *testing.T) {
			clients := kubernetes.NewForConfigOrDie(&rest.Config{QPS: test.qps, Burst: 100, RateLimiter: test.limiter})
			core, err := recordTarget(coreSink(clients), newTraitsCache(), unlimited)
			newStyle, newErr := eventsTarget(&events.EventSinkImpl{Interface: clients.EventsV1()}, newTraitsCache(), unlimited)
			if err := errors.Join(err, newErr); err != nil {
				t.Fatal(err)
			}
			for _, got := range []sink.Options{core.options, newStyle.options} {
				if got.QPS != test.wantQPS || got.Burst != test.wantBurst {
					t.Errorf("%v per second with a burst of %d, want %v with %d", got.QPS, got.Burst, test.wantQPS, test.wantBurst)
				}
			}
		})
	}
	fakes := fake.NewClientset()
	core, err := recordTarget(coreSink(fakes), newTraitsCache(), unlimited)
	if err != nil || core.options.QPS != unlimited.QPS || core.server != "" {
		t.Errorf("a fake client became %+v: %v", core, err)
	}
	if _, err := eventsTarget(&events.EventSinkImpl{Interface: fakes.EventsV1()}, newTraitsCache(), unlimited); err != nil {
		t.Error(err)
	}
}

func TestErrorNamesTheInvalidOption(t *testing.T) {
	pipeline := func(o Options) error {
		p, err := New(t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		defer drain(t, drainable{p})
		return p.StartSink(newMemoryServer(0, faults{}))
	}
	broadcaster := func(o Options) error {
		b := NewEventsBroadcaster(&newStyleSink{}, WithOptions(o))
		defer b.Shutdown()
		return b.StartRecordingToSinkWithContext(t.Context())
	}
	watcher := func(o Options) error {
		b := NewEventsBroadcaster(nil, WithOptions(o))
		defer b.Shutdown()
		_, err := b.StartEventWatcher(func(apiruntime.Object) {})
		return err
	}
	for _, test := range []struct {
		field  string
		spoil  func(*Options)
		starts []func(Options) error
	}{
		{"pipeline options: QueueCapacity", func(o *Options) { o.QueueCapacity = 0 }, []func(Options) error{pipeline, broadcaster}},
		{"pipeline options: WatcherCapacity", func(o *Options) { o.WatcherCapacity = -1 }, []func(Options) error{watcher}},
		{"correlator options: ", func(o *Options) { o.Correlator.Burst = 0 }, []func(Options) error{pipeline, broadcaster}},
		{"sink options: ", func(o *Options) { o.Sink.Concurrency = 0 }, []func(Options) error{pipeline, broadcaster}},
	} {
		for _, start := range test.starts {
			o := DefaultOptions()
			test.spoil(&o)
			if err := start(o); err == nil || !strings.HasPrefix(err.Error(), test.field) {
				t.Errorf("%s: %v", test.field, err)
			}
		}
	}
}

// client-go's interface returns no error.
func TestSinkThatCannotBeStartedEndsAtOnce(t *testing.T) {
	invalid, b := NewRecordBroadcaster(with(func(o *Options) { o.Sink.Concurrency = 0 })), NewRecordBroadcaster()
	var nobody *typedcorev1.EventSinkImpl
	for _, w := range []watch.Interface{
		invalid.StartRecordingToSink(&memorySink{}),
		invalid.StartRecordingToSink(coreSink(kubernetes.NewForConfigOrDie(&rest.Config{}))),
		b.StartRecordingToSink(nil), b.StartRecordingToSink(nobody), b.StartRecordingToSink(&typedcorev1.EventSinkImpl{}),
	} {
		if _, open := <-w.ResultChan(); open {
			t.Error("it was started")
		}
	}
	invalid.Shutdown()
	b.Shutdown()
}

// hang changes a part of a client configuration so that it does not return before the end of
// the test. entered reports whether it was called.
type hang = func(t *testing.T, c *rest.Config) (entered func() bool)

// plugin is a program that ignores signals while a file exists. client-go runs it without a
// context.
const plugin = `#!/bin/sh
trap '' HUP INT TERM
: > "$1/entered"
while [ -e "$1/entered" ]; do sleep 0.05; done
`

// hangingPlugin sets an exec credential plugin.
func hangingPlugin(t *testing.T, c *rest.Config) func() bool {
	dir := t.TempDir() // its removal ends the plugin
	command := filepath.Join(dir, "plugin")
	if err := os.WriteFile(command, []byte(plugin), 0o700); err != nil {
		t.Fatal(err)
	}
	c.ExecProvider = &clientcmdapi.ExecConfig{
		APIVersion: "client.authentication.k8s.io/v1", Command: command, Args: []string{dir},
		InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
	}
	return func() bool {
		_, err := os.Stat(filepath.Join(dir, "entered"))
		return err == nil
	}
}

// hangingIn sets a part that calls wait.
func hangingIn(change func(c *rest.Config, wait func() error)) hang {
	return func(t *testing.T, c *rest.Config) func() bool {
		var entered atomic.Bool
		never := make(chan struct{})
		t.Cleanup(func() { close(never) })
		change(c, func() error {
			entered.Store(true)
			<-never
			return errors.New("it hung")
		})
		return entered.Load
	}
}

// roundTripper is a custom http.RoundTripper.
type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// endless is a body whose Read and Close do not return.
type endless struct{ wait func() error }

func (e endless) Read([]byte) (int, error) { return 0, e.wait() }
func (e endless) Close() error             { return e.wait() }

var transports = map[string]hang{
	"exec plugin": hangingPlugin,
	"wrapped round tripper": hangingIn(func(c *rest.Config, wait func() error) {
		c.Wrap(func(http.RoundTripper) http.RoundTripper {
			return roundTripper(func(*http.Request) (*http.Response, error) { return nil, wait() }) // as a token source does
		})
	}),
	"response body": hangingIn(func(c *rest.Config, wait func() error) {
		c.TLSClientConfig = rest.TLSClientConfig{}
		c.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
			header := http.Header{"Content-Type": {"application/json"}}
			return &http.Response{StatusCode: http.StatusCreated, Header: header, Body: endless{wait}}, nil
		})
	}),
	"dial": hangingIn(func(c *rest.Config, wait func() error) {
		c.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, wait() }
	}),
	"proxy": hangingIn(func(c *rest.Config, wait func() error) {
		c.Proxy = func(*http.Request) (*url.URL, error) { return nil, wait() }
	}),
}

// assemblies start what writes with a client configuration, and return how to record.
var assemblies = map[string]func(*testing.T, *rest.Config) (drainer, func(pod *corev1.Pod)){
	"Pipeline": func(t *testing.T, config *rest.Config) (drainer, func(*corev1.Pod)) {
		client, err := sink.NewClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		p := startPipeline(t, DefaultOptions(), client)
		r := p.NewRecorder(scheme.Scheme, source)
		return p, func(pod *corev1.Pod) { r.Event(pod, "Normal", "Tested", "") }
	},
	"RecordBroadcaster": func(_ *testing.T, config *rest.Config) (drainer, func(*corev1.Pod)) {
		b, r := recordTo(coreSink(kubernetes.NewForConfigOrDie(config)))
		return b, func(pod *corev1.Pod) { r.Event(pod, "Normal", "Tested", "") }
	},
	"EventsBroadcaster": func(t *testing.T, config *rest.Config) (drainer, func(*corev1.Pod)) {
		b, r := eventsTo(t, &events.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(config).EventsV1()})
		return b, func(pod *corev1.Pod) { r.Eventf(pod, nil, "Normal", "Tested", "Testing", "") }
	},
}

// Parts of a client configuration may ignore the context of a request.
func TestShutdownIsBoundedWhateverTheTransportDoes(t *testing.T) {
	t.Run("all", func(t *testing.T) {
		for part, hangs := range transports {
			for assembly, assemble := range assemblies {
				t.Run(part+" of a "+assembly, func(t *testing.T) {
					t.Parallel()
					const recorded = 100
					limit := 100 * time.Millisecond
					if part == "exec plugin" {
						limit = 2 * time.Second
					}
					server := httptest.NewTLSServer(http.NotFoundHandler())
					t.Cleanup(server.Close)
					config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
					entered := hangs(t, config)
					b, record := assemble(t, config)
					for i := range recorded {
						record(podIn("ns", fmt.Sprint("web-", i)))
					}
					await.Until(t, "it is called", entered)
					// The exact limit is tested in synctest bubbles; here the machine may be busy.
					wantShutdownWithin(t, b, limit, limit+20*shutdownLimit)
					if totals := settled(t, b); totals.Recorded != recorded || totals.Written() != 0 {
						t.Errorf("ledger %+v", totals)
					}
				})
			}
		}
	})
	await.Until(t, "the goroutines of all calls end", func() bool {
		stacks := make([]byte, 4<<20)
		return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "pkg/sink.(*worker)")
	})
}
