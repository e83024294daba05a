package recorder

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"
	"unsafe"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// kept keeps what is published, with the Event built.
type kept struct {
	mu        sync.Mutex
	published []*occurrence.Occurrence
	refused   []occurrence.Reason
}

func (k *kept) Publish(o *occurrence.Occurrence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.published = append(k.published, o.WithEvent())
}

func (k *kept) Refuse(r occurrence.Reason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = append(k.refused, r)
}

var (
	source = corev1.EventSource{Component: "controller", Host: "node-1"}
	pod    = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "u1", ResourceVersion: "3"}}
	node   = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
)

var podReference = corev1.ObjectReference{
	Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "web-0", UID: "u1", ResourceVersion: "3",
}

// wantOccurrence fails unless an occurrence is as wanted, and was recorded now.
func wantOccurrence(t *testing.T, got *occurrence.Occurrence, began time.Time, want *occurrence.Occurrence) {
	t.Helper()
	if got.Recorded.Before(began) || got.Recorded.After(time.Now()) || got.Series() != identity.Of(got.Event) {
		t.Errorf("recorded at %v, in the series %v", got.Recorded, got.Series())
	}
	want.Recorded = got.Recorded
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEvent(t *testing.T) {
	var k kept
	before := time.Now()
	New(&k, scheme.Scheme, source).AnnotatedEventf(pod, map[string]string{"a": "b"}, "Warning", "BackOff", "back-off %d", 5)
	o := k.published[0]
	recorded := metav1.NewTime(o.Recorded)
	wantOccurrence(t, o, before, &occurrence.Occurrence{Weight: 1, API: occurrence.CoreV1, Event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{"a": "b"}},
		InvolvedObject: podReference, Source: source, Count: 1, FirstTimestamp: recorded, LastTimestamp: recorded,
		Type: "Warning", Reason: "BackOff", Message: "back-off 5",
		ReportingController: "controller", ReportingInstance: "node-1",
	}})
}

type panics struct{}

func (panics) String() string { panic("no") }

// Callers pass a typed nil pointer by accident.
func TestRecordingNeverPanics(t *testing.T) {
	var k kept
	classic, newStyle := recorders(&k)
	for _, object := range []runtime.Object{nil, (*corev1.Pod)(nil), &runtime.Unknown{}, (*corev1.ObjectReference)(nil)} {
		classic.Event(object, "Normal", "R", "")
		newStyle.Eventf(object, object, "Normal", "R", "A", "%s", panics{})
	}
	classic.Event(pod, "Unusual", "R", "")
	newStyle.Eventf(pod, nil, "Unusual", "R", "A", "")
	NewEvents(&k, occurrence.EventsV1, nil, "controller").Eventf(&corev1.Pod{}, nil, "Normal", "R", "A", "") // no scheme
	if len(k.refused) != 11 || len(k.published) != 0 {
		t.Errorf("refused %v, published %d", k.refused, len(k.published))
	}
	classic.Eventf(pod, "Normal", "R", "%s", panics{})
	newStyle.Eventf(pod, nil, "Normal", "R", "A", "%v %d", panicsAgain{})
	if len(k.published) != 2 {
		t.Errorf("published %d", len(k.published))
	}
}

func TestSourceMaySetTheSeries(t *testing.T) {
	var k kept
	first := &corev1.Event{Reason: "as it began"}
	Record(&k, &occurrence.Occurrence{Event: &corev1.Event{}, Begun: first})
	if got := k.published[0]; got.Begun != first || got.Recorded.IsZero() {
		t.Errorf("published %+v", got)
	}
}

func TestRecordersAreSafeForConcurrentUse(t *testing.T) {
	var k kept
	r := New(&k, scheme.Scheme, source)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				for _, object := range []runtime.Object{pod, node, &appsv1.Deployment{}} {
					r.WithLogger(klog.Background()).Eventf(object, "Normal", "Reason", "message")
				}
			}
		})
	}
	wg.Wait()
	if len(k.published) != 3*800 {
		t.Errorf("published %d", len(k.published))
	}
}

// queue keeps what is published, with the Event not yet built.
type queue []*occurrence.Occurrence

func (q *queue) Publish(o *occurrence.Occurrence) { *q = append(*q, o) }
func (q *queue) Refuse(occurrence.Reason)         {}

// nowhere drops what is published.
type nowhere struct{}

func (nowhere) Publish(*occurrence.Occurrence) {}
func (nowhere) Refuse(occurrence.Reason)       {}

// recorders returns a recorder of each kind.
func recorders(p Publisher) (*Recorder, *EventsRecorder) {
	return New(p, scheme.Scheme, source), NewEvents(p, occurrence.EventsV1, scheme.Scheme, "controller")
}

// Short messages are kept in another place than long ones.
func TestMessagesAreWhatSprintfMakes(t *testing.T) {
	var k kept
	classic, newStyle := recorders(&k)
	for _, length := range []int{0, 1, 52, 53, 54, 55, 56, 128, 500} {
		text := strings.Repeat("x", length)
		wants := []string{text + "100%"}
		k.published = nil
		classic.Event(pod, "Normal", "R", text+"100%")
		for format, args := range map[string][]any{
			"%s": {text}, text: nil, text + "%": nil, "y" + text: {"extra"}, "%s€ %+v": {text, struct{ A int }{3}},
		} {
			call{classic: true, reason: "R", note: format, args: args}.of(classic, newStyle)
			call{reason: "R", note: format, args: args}.of(classic, newStyle)
			wants = append(wants, fmt.Sprintf(format, args...), fmt.Sprintf(format, args...))
		}
		for i, want := range wants {
			if got := k.published[i].Event.Message; got != want {
				t.Errorf("message %q, want %q", got, want)
			}
		}
	}
}

// Subscribers share an occurrence. A caller may change its annotations while it is queued.
func TestEachSubscriberBuildsItsOwnEvent(t *testing.T) {
	var q queue
	classic, newStyle := recorders(&q)
	annotations := map[string]string{"a": "b"}
	classic.AnnotatedEventf(pod, annotations, "Warning", "R", "%s", "message")
	annotations["a"] = "another"
	newStyle.Eventf(pod, node, "Normal", "R", "A", "%s", "message")
	for i, eventtype := range []string{"Warning", "Normal"} {
		o := q[i]
		if o.Event != nil || o.Type() != eventtype {
			t.Errorf("queued %+v", o)
		}
		first, second := o.WithEvent(), o.WithEvent()
		if first.WithEvent() != first || o.Event != nil || first.Type() != eventtype || first.Recorded != o.Recorded {
			t.Errorf("built %+v of %+v", first, o)
		}
		before := second.Event.DeepCopy()
		if diff := cmp.Diff(first, second); diff != "" || before.Message != "message" || before.Annotations["a"] == "another" {
			t.Errorf("built %+v and %+v", first.Event, before)
		}
		changed := first.Event
		changed.Message = "another"
		if changed.Related == nil {
			changed.Annotations["a"] = "another"
		} else {
			changed.Related.Name = "another"
		}
		if diff := cmp.Diff(before, second.Event); diff != "" {
			t.Errorf("changed with the other: %s", diff)
		}
	}
}

// Watchers share one Event in each form, whoever is first. It has the name that is stored, and
// otherwise is the one that a sink builds for itself.
func TestWatchersShareTheEvent(t *testing.T) {
	var q queue
	classic, newStyle := recorders(&q)
	classic.AnnotatedEventf(pod, map[string]string{"a": "b"}, "Warning", "R", "%s", "message")
	newStyle.Eventf(pod, node, "Normal", "R", "A", "%s", "message")
	for _, o := range q {
		own := o.WithEvent()
		own.Event.Name = identity.Name(own.Event.InvolvedObject.Name, own.Series(), 0)
		var readers sync.WaitGroup
		events, converted := make([]*corev1.Event, 16), make([]*eventsv1.Event, 16)
		for i := range events {
			readers.Go(func() {
				shared := o.Origin.Shared(o.Recorded)
				events[i], converted[i] = shared.CoreV1(), shared.EventsV1()
			})
		}
		readers.Wait()
		for i := range events {
			if events[i] != events[0] || converted[i] != converted[0] || events[i] == own.Event {
				t.Errorf("watcher %d has another Event", i)
			}
		}
		if diff := cmp.Diff(own.Event, events[0]); diff != "" {
			t.Errorf("shared (-own +shared): %s", diff)
		}
		if diff := cmp.Diff(identity.ToEventsV1(own.Event), converted[0]); diff != "" {
			t.Errorf("shared in the other form (-own +shared): %s", diff)
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
	classic, newStyle := recorders(nowhere{})
	args, long := []any{"app", 5}, strings.Repeat("long ", 20)+"%s %d"
	for name, test := range map[string]struct {
		most   float64
		record func()
	}{
		"Event":                 {1, func() { classic.Event(pod, "Warning", "R", long) }},
		"Eventf":                {1, func() { classic.Eventf(pod, "Warning", "R", "restarting %s for the %dth time", args...) }},
		"long Eventf":           {2, func() { classic.Eventf(pod, "Warning", "R", long, args...) }},
		"new-style Eventf":      {1, func() { newStyle.Eventf(pod, nil, "Warning", "R", "A", "%s after %v", args...) }},
		"long new-style Eventf": {2, func() { newStyle.Eventf(pod, nil, "Warning", "R", "A", long, args...) }},
	} {
		// The least of three: the runtime and the race detector allocate, too.
		n := testing.AllocsPerRun(100, test.record)
		for range 2 {
			n = min(n, testing.AllocsPerRun(100, test.record))
		}
		if n > test.most {
			t.Errorf("%s allocates %v times", name, n)
		}
	}
}

func formatted(b []byte, format string, args []any) string {
	out, ok := appendf(b, format, args)
	if !ok {
		return "a panic"
	}
	return string(out)
}

func TestUsualFormatsArePlain(t *testing.T) {
	for format, args := range map[string][]any{
		"%s": {""}, "%d": {-1, int32(5), int64(1) << 62}, "%v": {"a", -1, int32(5), int64(6)},
	} {
		for _, arg := range args {
			if _, plain := appendPlain(nil, format, []any{arg}); !plain {
				t.Errorf("%s of a %T is not", format, arg)
			}
		}
	}
}

// Formats of what formats are made of, in any order.
func TestAnyFormatIsThatOfFmt(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	pieces := []string{"%", "%s", "%d", "%v", "%%", "s", "d", "v", "+", "-", "3", ".", "[1]", "*", "q", "€", " ", "\xff", "text"}
	values := []any{"a", "%d", "\xff€", 5, -6, int32(7), int64(8), uint(9), nil, 1.5, true, corev1.PodRunning, []string{"b"}}
	plain := 0
	for range 50_000 {
		var format string
		var args []any
		for range random.IntN(6) {
			format += pieces[random.IntN(len(pieces))]
		}
		for range random.IntN(4) {
			args = append(args, values[random.IntN(len(values))])
		}
		want := fmt.Sprintf(format, args...)
		if got := formatted(nil, format, args); got != want {
			t.Errorf("%q of %v: %q, want %q", format, args, got, want)
		}
		if _, ok := appendPlain(nil, format, args); ok && len(args) > 0 {
			plain++
		}
	}
	if plain < 100 {
		t.Errorf("only %d were plain", plain)
	}
}

func FuzzAppendf(f *testing.F) {
	f.Add("%s %d %v", "a", "b", 1, int32(2), int64(3), uint8(0o12))
	f.Add("%v%% %+d %[1]s %!", "%", "\xff", -1, int32(-2), int64(-3), uint8(0o70))
	f.Fuzz(func(t *testing.T, format, a, b string, c int, d int32, e int64, order uint8) {
		args := []any{a, c, b, d, e}
		// Any number of them, from any on.
		args = args[order&7%5:]
		args = args[:min(len(args), int(order>>3))]
		if got, want := formatted([]byte("kept "), format, args), "kept "+fmt.Sprintf(format, args...); got != want {
			t.Errorf("%q of %v: %q, want %q", format, args, got, want)
		}
	})
}
