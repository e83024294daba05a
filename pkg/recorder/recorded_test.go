package recorder

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unsafe"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// queue keeps what is published, with the Event not yet built.
type queue []*occurrence.Occurrence

func (q *queue) Publish(o *occurrence.Occurrence) { *q = append(*q, o) }
func (q *queue) Refuse(occurrence.Reason)         {}

func TestMessagesAreWhatSprintfMakes(t *testing.T) {
	var k kept
	classic, newStyle := New(&k, scheme.Scheme, source), NewEvents(&k, occurrence.EventsV1, scheme.Scheme, "controller")
	var wants []string
	for _, length := range []int{0, 1, 52, 53, 54, 55, 56, 128, 500} {
		text := strings.Repeat("x", length)
		for _, test := range []struct {
			format string
			args   []any
		}{
			{"%s", []any{text}},
			{text + "%d", []any{length}},
			{text, nil},
			{text + "%", nil},
			{text, []any{"extra"}},
			{"%s€", []any{text}},
			{"%v %+v %q", []any{pod.ObjectMeta.Name, struct{ A int }{3}, text}},
		} {
			classic.Eventf(pod, "Normal", "R", test.format, test.args...)
			newStyle.Eventf(pod, nil, "Normal", "R", "A", test.format, test.args...)
			want := fmt.Sprintf(test.format, test.args...)
			wants = append(wants, want, want)
		}
		classic.Event(pod, "Normal", "R", text+"100%")
		wants = append(wants, text+"100%")
	}
	for i, want := range wants {
		if got := k.published[i].Event.Message; got != want {
			t.Errorf("message %q, want %q", got, want)
		}
	}
}

// Subscribers share an occurrence. A caller may change its annotations while it is queued.
func TestEachSubscriberBuildsItsOwnEvent(t *testing.T) {
	var q queue
	annotations := map[string]string{"a": "b"}
	New(&q, scheme.Scheme, source).AnnotatedEventf(pod, annotations, "Warning", "R", "%s", "message")
	annotations["a"] = "another"
	NewEvents(&q, occurrence.EventsV1, scheme.Scheme, "controller").Eventf(pod, node, "Normal", "R", "A", "%s", "message")
	for i, eventtype := range []string{"Warning", "Normal"} {
		o := q[i]
		if o.Event != nil || o.Type() != eventtype {
			t.Errorf("queued %+v", o)
		}
		first, second := o.WithEvent(), o.WithEvent()
		name := o.Origin.Name(first.Event)
		if want := identity.Name(first.Event.InvolvedObject.Name, first.Series(), 0); name != want || o.Origin.Name(second.Event) != want {
			t.Errorf("named %q, want %q", name, want)
		}
		if first == second || first.Event == second.Event || o.Event != nil || first.WithEvent() != first || first.Type() != eventtype {
			t.Errorf("built %p and %p", first, second)
		}
		changed := first.Event
		changed.Message = "another"
		if changed.Annotations != nil {
			changed.Annotations["a"] = "another"
		}
		if changed.Related != nil {
			changed.Related.Name = "another"
		}
		e := second.Event
		if e.Message != "message" || e.Annotations["a"] == "another" || e.Related != nil && e.Related.Name != "node-1" {
			t.Errorf("%+v changed with the other", e)
		}
		if first.Series() == second.Series() {
			t.Error("the series does not depend on the Event")
		}
		if first.Recorded != second.Recorded || second.Weight != 1 || second.API != o.API {
			t.Errorf("built %+v of %+v", second, o)
		}
	}
}

// A queue is bounded in occurrences: see broadcaster.DefaultCapacity.
func TestQueuedOccurrenceIsSmall(t *testing.T) {
	event := unsafe.Sizeof(corev1.Event{})
	for _, size := range []uintptr{unsafe.Sizeof(classic{}), unsafe.Sizeof(newStyle{})} {
		if size > 352 { // the next size that Go allocates is 384
			t.Errorf("%d bytes are queued instead of an Event of %d", size, event)
		}
	}
}

func TestRecordingAllocatesOncePerOccurrenceAndTwiceForALongMessage(t *testing.T) {
	classic, newStyle := New(nowhere{}, scheme.Scheme, source), NewEvents(nowhere{}, occurrence.EventsV1, scheme.Scheme, "controller")
	args, long := []any{"app", 5}, strings.Repeat("long ", 20)+"%s %d"
	for name, test := range map[string]struct {
		most   float64
		record func()
	}{
		"Event": {1, func() { classic.Event(pod, "Warning", "BackOff", long) }},
		"Eventf": {1, func() {
			classic.Eventf(pod, "Warning", "BackOff", "restarting container %s for the %dth time", args...)
		}},
		"long Eventf":           {2, func() { classic.Eventf(pod, "Warning", "BackOff", long, args...) }},
		"new-style Eventf":      {1, func() { newStyle.Eventf(pod, nil, "Warning", "BackOff", "Restarting", "%s after %v", args...) }},
		"long new-style Eventf": {2, func() { newStyle.Eventf(pod, nil, "Warning", "BackOff", "Restarting", long, args...) }},
	} {
		// The least of three: the runtime and the race detector allocate, too.
		runs := []float64{testing.AllocsPerRun(100, test.record), testing.AllocsPerRun(100, test.record), testing.AllocsPerRun(100, test.record)}
		if n := slices.Min(runs); n > test.most {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}
