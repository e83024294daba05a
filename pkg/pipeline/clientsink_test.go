package pipeline

import (
	"errors"
	"math"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
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
		_, err := b.StartEventWatcher(func(runtime.Object) {})
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
