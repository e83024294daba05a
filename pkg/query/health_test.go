package query_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// hanging is an apiserver that does not answer.
type hanging struct{}

func (hanging) List(ctx context.Context, _ int64, _ string) (*corev1.EventList, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (hanging) Watch(ctx context.Context, _ string, _ time.Duration) (watch.Interface, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// watching is an observer whose watch is open. It closes began when the history reads from it.
type watching struct {
	*observer.Observer
	began chan struct{}
}

func (w watching) Status() observer.Status { return observer.Status{Connected: true} }

func (w watching) Reader(start observer.Start) *observer.Reader {
	close(w.began)
	return w.Observer.Reader(start)
}

// While its watch is not open, the history misses what is stored, and its station says so.
func TestTheHistoryIsHealthyWhileItsWatchIsOpen(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := history.NewMetrics(registry)
	if err != nil {
		t.Fatal(err)
	}
	h, err := history.New(history.Options{MaxBytes: 8 << 20, Metrics: metrics})
	if err != nil {
		t.Fatal(err)
	}
	s := newScene(t, func(o *query.Options) { o.History, o.Gatherer = h, registry })
	want := func(healthy bool) {
		t.Helper()
		status := get[v1alpha1.PipelineStatus](t, s, "status")
		i := slices.IndexFunc(status.Stations, func(s v1alpha1.Station) bool { return s.Name == "history" })
		if i < 0 {
			t.Fatalf("the stations are %+v", status.Stations)
		}
		if got := status.Stations[i]; got.Healthy != healthy || (got.Message == "") != healthy || status.History.Connected != healthy {
			t.Errorf("the history is %+v, want healthy: %v", got, healthy)
		}
	}
	want(false)

	o, err := observer.New(observer.Options{Source: hanging{}})
	if err != nil {
		t.Fatal(err)
	}
	w := watching{o, make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		if err := h.Run(ctx, w); err != nil {
			t.Error(err)
		}
	})
	<-w.began
	want(true)
	cancel()
	running.Wait()
	want(false)
}

// While the watch of Events is not open, receivers get nothing, and nothing is pending for them. The station says so,
// where any receiver has Events observed for it.
func TestTheObserverIsHealthyWhileItsWatchIsOpen(t *testing.T) {
	for _, test := range []struct {
		states    []string
		connected float64
		healthy   bool
	}{
		{nil, 0, true},
		{[]string{"standby", "paused"}, 0, true},
		{[]string{"paused", "starting"}, 0, false},
		{[]string{"waiting"}, 0, false},
		{[]string{"waiting"}, 1, true},
	} {
		registry := prometheus.NewRegistry()
		connected := prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_observer_connected"})
		connected.Set(test.connected)
		registry.MustRegister(connected)
		s := newScene(t, func(o *query.Options) {
			o.History, o.Gatherer = nil, registry
			o.Status = func() (status v1alpha1.PipelineStatus) {
				for _, state := range test.states {
					status.Receivers = append(status.Receivers, v1alpha1.ReceiverStatus{Name: state, State: state})
				}
				return status
			}
		})
		status := get[v1alpha1.PipelineStatus](t, s, "status")
		if len(status.Stations) != 1 || status.Stations[0].Healthy != test.healthy || (status.Stations[0].Message == "") != test.healthy {
			t.Errorf("%+v: %+v", test, status.Stations)
		}
	}
}
