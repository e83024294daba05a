package pipeline

import (
	"math"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/testenv"
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
			config := testenv.Shared(t).Config()
			config.QPS, config.Burst, config.RateLimiter = test.qps, 100, test.limiter
			clients := kubernetes.NewForConfigOrDie(config)
			core, err := recordTarget(&typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}, newHabitsOf(), unlimited)
			if err != nil {
				t.Fatal(err)
			}
			newStyle, err := eventsTarget(&events.EventSinkImpl{Interface: clients.EventsV1()}, newHabitsOf(), unlimited)
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
	core, err := recordTarget(&typedcorev1.EventSinkImpl{Interface: fakes.CoreV1().Events("")}, newHabitsOf(), unlimited)
	if err != nil || core.options.QPS != unlimited.QPS || core.server != "" {
		t.Errorf("a fake client became %+v: %v", core, err)
	}
	if _, err := eventsTarget(&events.EventSinkImpl{Interface: fakes.EventsV1()}, newHabitsOf(), unlimited); err != nil {
		t.Error(err)
	}
}

func TestOptionsAreValidatedWhenASinkIsStarted(t *testing.T) {
	o := DefaultOptions()
	o.Sink.Concurrency = 0
	b := NewRecordBroadcaster(WithOptions(o))
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	for _, sink := range []record.EventSink{&memorySink{}, &typedcorev1.EventSinkImpl{Interface: clients.CoreV1().Events("")}} {
		if _, open := <-b.StartRecordingToSink(sink).ResultChan(); open {
			t.Error("a sink with bad options was started")
		}
	}
	b.Shutdown()
}
