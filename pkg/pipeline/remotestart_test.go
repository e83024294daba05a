package pipeline

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

// asIs is a handler without faults.
func asIs(next http.Handler) http.Handler { return next }

// names returns those of the metrics of a registry, with a prefix.
func names(t *testing.T, g prometheus.Gatherer, prefix string) (out []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if strings.HasPrefix(f.GetName(), prefix) {
			out = append(out, f.GetName())
		}
	}
	return out
}

// A sink that cannot start is an error, and leaves neither a sink nor its metrics.
func TestRemoteSinkThatCannotStartLeavesNothing(t *testing.T) {
	for name, test := range map[string]struct {
		spoil func(o *Options, config *rest.Config)
		want  string
	}{
		"a certificate that is not there": {func(_ *Options, config *rest.Config) {
			config.TLSClientConfig = rest.TLSClientConfig{CAFile: "/nowhere"}
		}, "/nowhere"},
		"no queue":            {func(o *Options, _ *rest.Config) { o.QueueCapacity = 0 }, "QueueCapacity"},
		"options of the sink": {func(o *Options, _ *rest.Config) { o.Remote.MaxItems = 0 }, "MaxItems"},
		"a metric of somebody else": {func(o *Options, _ *rest.Config) {
			o.Registerer.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_remote_requests_total"}))
		}, "eventd_remote_requests_total"},
		"a metric of the queue of somebody else": {func(o *Options, _ *rest.Config) {
			o.Registerer.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "eventd_broadcaster_queue_capacity"}))
		}, "eventd_broadcaster_queue_capacity"},
	} {
		t.Run(name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			o, config := DefaultOptions(), &rest.Config{Host: "https://127.0.0.1:1"}
			o.Registerer = registry
			test.spoil(&o, config)
			p, err := New(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			before := names(t, registry, "")
			to, err := eventdTarget(config)
			if err == nil {
				err = p.StartRemoteSink(to.remote)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v", err)
			}
			if after := names(t, registry, ""); !slices.Equal(before, after) {
				t.Errorf("the metrics are %q, want %q as before", after, before)
			}
			p.Record(&occurrence.Occurrence{Event: &corev1.Event{}, Weight: 1})
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
			if totals := p.Totals(); totals.Pending() != 0 || totals.Dropped[occurrence.NoSink] != 1 {
				t.Errorf("dropped %v", totals.Dropped)
			}
		})
	}
}

// A broadcaster returns the error, or logs it if it cannot.
func TestRemoteSinkOfABroadcasterThatCannotStart(t *testing.T) {
	config := &rest.Config{Host: "https://127.0.0.1:1"}
	for name, test := range map[string]struct {
		spoil  func(o *Options)
		config *rest.Config
		want   string
	}{
		"a certificate that is not there": {func(*Options) {}, &rest.Config{Host: config.Host, TLSClientConfig: rest.TLSClientConfig{CAFile: "/nowhere"}}, "/nowhere"},
		"no queue":                        {func(o *Options) { o.QueueCapacity = 0 }, config, "QueueCapacity"},
		"options of the sink":             {func(o *Options) { o.Remote.MaxItems = 0 }, config, "MaxItems"},
	} {
		t.Run(name, func(t *testing.T) {
			events := NewEventsBroadcaster(nil, with(test.spoil))
			defer events.Shutdown()
			if err := events.StartRecordingToEventd(t.Context(), test.config); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("the error is %v", err)
			}
			b := NewRecordBroadcaster(with(test.spoil))
			defer b.Shutdown()
			select {
			case <-b.StartRecordingToEventd(test.config).ResultChan():
			default:
				t.Error("a RecordBroadcaster has a sink")
			}
		})
	}
}

// A pipeline has one sink, wherever that writes to.
func TestPipelineHasOneRemoteSink(t *testing.T) {
	intake, config := reportTo(t, asIs)
	registry := prometheus.NewRegistry()
	o := DefaultOptions()
	o.Registerer = registry
	p, err := New(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	to, err := eventdTarget(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartRemoteSink(to.remote); err != nil {
		t.Fatal(err)
	}
	if p.StartRemoteSink(to.remote) == nil || p.StartSink(nil) == nil {
		t.Error("a second sink has started")
	}
	if n := len(names(t, registry, "eventd_remote_")); n == 0 {
		t.Error("it has no metrics")
	}
	event := &corev1.Event{}
	event.Namespace, event.InvolvedObject.Namespace = "ns", "ns"
	p.Record(&occurrence.Occurrence{Event: event, Weight: 3})
	if err := p.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	if totals := p.Totals(); counted(intake) != 3 || totals.Outcomes[occurrence.Acknowledged] != 3 || totals.Pending() != 0 {
		t.Errorf("eventd has counted %d, want 3; the totals are %+v", counted(intake), totals)
	}
}

// A sink of a broadcaster joins one for the same eventd that has not been stopped, and no other.
func TestSecondSinkForTheSameEventdJoinsTheFirst(t *testing.T) {
	one, toOne := reportTo(t, asIs)
	other, toOther := reportTo(t, asIs)
	registry := prometheus.NewRegistry()
	b := NewRecordBroadcaster(with(func(o *Options) { o.Registerer, o.DrainTimeout = registry, time.Minute }))
	first, second := b.StartRecordingToEventd(toOne), b.StartRecordingToEventd(toOne)
	b.StartRecordingToEventd(toOther)
	r := b.NewRecorder(scheme.Scheme, source)
	record := func() { r.Event(podIn("ns", "web-0"), "Normal", "Tested", "") }
	record()
	first.Stop()
	record()
	second.Stop()
	await.Until(t, "the first sink has ended", func() bool {
		select {
		case <-first.ResultChan():
			return true
		default:
			return false
		}
	})
	record() // for the other only
	if n := metricsWith(t, registry, "sink=2"); n == 0 {
		t.Error("the other sink has no metrics")
	}
	b.StartRecordingToEventd(toOne)
	record()
	drain(t, b)
	if a, b := counted(one), counted(other); a != 3 || b != 4 {
		t.Errorf("counted %d and %d, want 3 and 4", a, b)
	}
}
