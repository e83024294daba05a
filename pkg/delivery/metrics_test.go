package delivery

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/common/expfmt"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

const metricsBefore = `
eventd_receiver_delivered_versions_total{receiver="a"} 0
eventd_receiver_filtered_versions_total{receiver="a",route=""} 0
eventd_receiver_filtered_versions_total{receiver="a",route="filter"} 0
eventd_receiver_gaps_total{receiver="a"} 0
eventd_receiver_given_up_versions_total{reason="rejected",receiver="a"} 0
eventd_receiver_handed_over_versions_total{receiver="a"} 0
eventd_receiver_lag_seconds{receiver="a"} 0
eventd_receiver_observed_versions_total{receiver="a"} 0
eventd_receiver_pending_summaries{receiver="a"} 0
eventd_receiver_pending_versions{receiver="a"} 0
eventd_receiver_restores_total{receiver="a"} 0
eventd_receiver_send_attempts_total{receiver="a",result="canceled"} 0
eventd_receiver_send_attempts_total{receiver="a",result="error"} 0
eventd_receiver_send_attempts_total{receiver="a",result="partial"} 0
eventd_receiver_send_attempts_total{receiver="a",result="refused"} 0
eventd_receiver_send_attempts_total{receiver="a",result="success"} 0
eventd_receiver_send_attempts_total{receiver="a",result="throttled"} 0
eventd_receiver_send_attempts_total{receiver="a",result="timeout"} 0
eventd_receiver_start_failures_total{receiver="a"} 0
eventd_receiver_state{receiver="a",state="backing_off"} 0
eventd_receiver_state{receiver="a",state="hanging"} 0
eventd_receiver_state{receiver="a",state="paused"} 0
eventd_receiver_state{receiver="a",state="sending"} 0
eventd_receiver_state{receiver="a",state="standby"} 1
eventd_receiver_state{receiver="a",state="starting"} 0
eventd_receiver_state{receiver="a",state="waiting"} 0
eventd_receiver_summaries_total{receiver="a",result="delivered"} 0
eventd_receiver_summaries_total{receiver="a",result="lost"} 0
eventd_receiver_summaries_total{receiver="a",result="rejected"} 0
eventd_receiver_superseded_versions_total{receiver="a"} 0
`

// Every series of a receiver is there before something happens, and ends with it.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		b := newBench(t, func(o *Options) { o.Registerer = registry })
		b.apply(named("a"))
		want := make(map[string]string)
		for line := range strings.Lines(strings.TrimSpace(metricsBefore)) {
			series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
			want[series] = value
		}
		wantSeries(t, registry, want)

		gate := make(chan struct{})
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			<-gate
			return 1, nil
		}
		b.begin()
		b.write("e", 3)
		time.Sleep(4*time.Second - 2*sendInterval) // as long as write has taken
		want[`eventd_receiver_observed_versions_total{receiver="a"}`] = "3"
		want[`eventd_receiver_pending_versions{receiver="a"}`] = "3"
		want[`eventd_receiver_lag_seconds{receiver="a"}`] = "4"
		want[`eventd_receiver_state{receiver="a",state="standby"}`] = "0"
		want[`eventd_receiver_state{receiver="a",state="sending"}`] = "1"
		wantSeries(t, registry, want)
		close(gate)
		synctest.Wait()
		want[`eventd_receiver_pending_versions{receiver="a"}`] = "0"
		want[`eventd_receiver_lag_seconds{receiver="a"}`] = "0"
		want[`eventd_receiver_state{receiver="a",state="sending"}`] = "0"
		want[`eventd_receiver_state{receiver="a",state="waiting"}`] = "1"
		want[`eventd_receiver_delivered_versions_total{receiver="a"}`] = "2"
		want[`eventd_receiver_given_up_versions_total{reason="rejected",receiver="a"}`] = "1"
		want[`eventd_receiver_send_attempts_total{receiver="a",result="partial"}`] = "1"
		wantSeries(t, registry, want)
		if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
			t.Error(problems, err)
		}
		b.apply(named("other"))
		b.end(nil)
		if text := gather(t, registry); strings.Contains(text, `receiver="a"`) {
			t.Errorf("left of a removed receiver:\n%s", text)
		}
	})
}

// What was missed, and what is delivered again, is counted, as the alerts about it need.
func TestGapsRestoresAndPausesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		registry := prometheus.NewPedanticRegistry()
		b := newBench(t, func(o *Options) { o.Registerer = registry })
		wants := func(step string, gaps, restores, paused int) {
			t.Helper()
			synctest.Wait()
			text := gather(t, registry)
			for name, n := range map[string]int{"gaps_total": gaps, "restores_total": restores} {
				if line := fmt.Sprintf("eventd_receiver_%s{receiver=\"a\"} %d\n", name, n); !strings.Contains(text, line) {
					t.Errorf("%s: want %s", step, line)
				}
			}
			if line := fmt.Sprintf("eventd_receiver_state{receiver=\"a\",state=\"paused\"} %d\n", paused); !strings.Contains(text, line) {
				t.Errorf("%s: want %s", step, line)
			}
		}
		b.apply(named("a"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		b.write("e", 1)
		wants("at first", 0, 0, 0)
		b.apply(v1alpha1.Receiver{Name: "a", Paused: true})
		wants("paused", 0, 0, 1)
		b.write("e", 2)
		b.history.compact()
		b.routes = []v1alpha1.Route{{Name: "later"}}
		b.apply(named("a"))
		wants("after a compaction", 1, 0, 0)
		if !strings.Contains(gather(t, registry), `filtered_versions_total{receiver="a",route="later"} 0`) {
			t.Error("there is no counter of the new route")
		}
		b.history.restore(101)
		time.Sleep(time.Minute)
		wants("after a restore", 1, 1, 0)
		b.end(nil)
	})
}

// wantSeries checks all series of receivers but the histogram.
func wantSeries(t *testing.T, registry *prometheus.Registry, want map[string]string) {
	t.Helper()
	synctest.Wait()
	n := 0
	for line := range strings.Lines(gather(t, registry)) {
		series, value, _ := strings.Cut(strings.TrimSpace(line), " ")
		if strings.HasPrefix(line, "#") || !strings.HasPrefix(line, "eventd_receiver_") || strings.Contains(line, "_duration_") {
			continue
		}
		if n++; want[series] != value {
			t.Errorf("%s is %s, want %s", series, value, want[series])
		}
	}
	if n != len(want) {
		t.Errorf("%d series, want %d", n, len(want))
	}
}

func gather(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	var names []string
	families, err := registry.Gather()
	for _, f := range families {
		names = append(names, f.GetName())
	}
	text, encodeErr := testutil.CollectAndFormat(registry, expfmt.TypeTextPlain, names...)
	if err := errors.Join(err, encodeErr); err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestOptionsAreValidated(t *testing.T) {
	valid := func() Options { b := newBench(t); return b.options }
	for field, spoil := range map[string]func(*Options){
		"Client":      func(o *Options) { o.Client = nil },
		"Namespace":   func(o *Options) { o.Namespace = "" },
		"ConfigMap":   func(o *Options) { o.ConfigMap = "" },
		"NewSource":   func(o *Options) { o.NewSource = nil },
		"NewReceiver": func(o *Options) { o.NewReceiver = nil },
	} {
		o := valid()
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		spoil(&o)
		if _, err := New(o); err == nil || !strings.Contains(err.Error(), field) {
			t.Errorf("without %s: %v", field, err)
		}
	}
}
