package pipeline

import (
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/pkg/sink"
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
			config := &rest.Config{QPS: test.qps, Burst: 100, RateLimiter: test.limiter}
			clients := kubernetes.NewForConfigOrDie(config)
			core, err := recordTarget(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}, newTraitsCache(), unlimited)
			if err != nil {
				t.Fatal(err)
			}
			newStyle, err := eventsTarget(&events.EventSinkImpl{Interface: clients.EventsV1()}, newTraitsCache(), unlimited)
			if err != nil {
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
	core, err := recordTarget(&typedcorev1.EventSinkImpl{Interface: fakes.CoreV1().Events("")}, newTraitsCache(), unlimited)
	if err != nil || core.options.QPS != unlimited.QPS || core.server != "" {
		t.Errorf("a fake client became %+v: %v", core, err)
	}
	if _, err := eventsTarget(&events.EventSinkImpl{Interface: fakes.EventsV1()}, newTraitsCache(), unlimited); err != nil {
		t.Error(err)
	}
}

func TestErrorNamesTheInvalidOption(t *testing.T) {
	sinks := []func(o Options) error{
		func(o Options) error {
			p, err := New(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			defer drain(t, shutdownOf{p})
			return p.StartSink(newMemoryServer(0, faults{}))
		},
		func(o Options) error {
			b := NewEventsBroadcaster(&memoryEventsSink{}, WithOptions(o))
			defer b.Shutdown()
			return b.StartRecordingToSinkWithContext(t.Context())
		},
	}
	watchers := []func(o Options) error{func(o Options) error {
		b := NewEventsBroadcaster(nil, WithOptions(o))
		defer b.Shutdown()
		_, err := b.StartEventWatcher(func(runtime.Object) {})
		return err
	}}
	for _, test := range []struct {
		field  string
		spoil  func(*Options)
		starts []func(Options) error
	}{
		{"pipeline options: QueueCapacity", func(o *Options) { o.QueueCapacity = 0 }, sinks},
		{"pipeline options: WatcherCapacity", func(o *Options) { o.WatcherCapacity = -1 }, watchers},
		{"correlator options: ", func(o *Options) { o.Correlator.Burst = 0 }, sinks},
		{"sink options: ", func(o *Options) { o.Sink.Concurrency = 0 }, sinks},
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
func TestSinkWithInvalidOptionsEndsAtOnce(t *testing.T) {
	o := DefaultOptions()
	o.Sink.Concurrency = 0
	b := NewRecordBroadcaster(WithOptions(o))
	clients := kubernetes.NewForConfigOrDie(&rest.Config{})
	for _, sink := range []record.EventSink{&memorySink{}, &typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}} {
		if _, open := <-b.StartRecordingToSink(sink).ResultChan(); open {
			t.Error("a sink with invalid options was started")
		}
	}
	b.Shutdown()
}
