package correlator

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

func occurred(message string) *occurrence.Occurrence {
	event := &corev1.Event{Message: message}
	id := identity.Of(event)
	return &occurrence.Occurrence{Event: event, Digest: id.Digest(), Weight: 1}
}

func TestDecisionsCarryTheirReason(t *testing.T) {
	o := DefaultOptions()
	o.CacheSize = 2
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Unix(0, 0)
	for i, step := range []struct {
		message string
		after   time.Duration
		want    Reason
	}{
		{"a", 0, NewSeries},
		{"a", time.Second, Repeat},
		{"b", 0, NewSeries},
		{"a", o.Interval, Repeat},
		{"a", o.Interval + 1, NewSeries},
		{"c", 0, NewSeries}, // evicts b
		{"b", 0, NewSeries},
	} {
		now = now.Add(step.after)
		in := occurred(step.message)
		d := c.Correlate(in, now)
		if d.Reason != step.want {
			t.Errorf("step %d: %s, want %s", i, d.Reason, step.want)
		}
		if d.Target.Digest != in.Digest || d.Target.Event != in.Event {
			t.Errorf("step %d: another target", i)
		}
	}
}

func TestCombinedEventsOfClientsAreKnown(t *testing.T) {
	c, err := New(DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	combined, plain, newStyle := occurred(identity.CombinedPrefix+"x"), occurred("x"), occurred(identity.CombinedPrefix+"x")
	newStyle.Event.EventTime = metav1.NowMicro()
	for o, want := range map[*occurrence.Occurrence]bool{combined: true, plain: false, newStyle: false} {
		if got := c.Correlate(o, time.Now()).Target.Combined; got != want {
			t.Errorf("%q: combined is %v", o.Event.Message, got)
		}
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"cache size": func(o *Options) { o.CacheSize = 0 },
		"interval":   func(o *Options) { o.Interval = 0 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
