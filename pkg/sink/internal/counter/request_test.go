package counter

import (
	"encoding/json"
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// says adds an occurrence at noon whose Event is changed first. Nobody waits for it.
func says(changes ...func(*corev1.Event)) step {
	return func(w *world) {
		event := w.event.DeepCopy()
		at(0)(event)
		for _, change := range changes {
			change(event)
		}
		w.ours.add(&occurrence.Occurrence{Weight: 1}, event)
	}
}

// addsAtNoon is says for one for whose end somebody waits.
func addsAtNoon(w *world) {
	event := w.event.DeepCopy()
	at(0)(event)
	w.add(occurrence.Occurrence{Weight: 1}, event)
}

// arrives is says for one that arrives at a time, from noon on.
func arrives(d time.Duration, changes ...func(*corev1.Event)) step {
	return func(w *world) {
		event := w.event.DeepCopy()
		for _, change := range changes {
			change(event)
		}
		w.ours.add(&occurrence.Occurrence{Weight: 1, Recorded: noon.Add(d)}, event)
	}
}

// at sets the time, from noon on.
func at(d time.Duration) func(*corev1.Event) {
	return func(e *corev1.Event) {
		if e.EventTime.IsZero() {
			e.LastTimestamp = metav1.NewTime(noon.Add(d))
		} else {
			e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(noon.Add(d))}
		}
	}
}

// begun sets the time of the first occurrence, from noon on.
func begun(d time.Duration) func(*corev1.Event) {
	return func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(noon.Add(d)) }
}

func noSeries(e *corev1.Event) { e.Series = nil }

func labels(l map[string]string) func(*corev1.Event) {
	return func(e *corev1.Event) { e.Labels = maps.Clone(l) }
}

func annotations(a map[string]string) func(*corev1.Event) {
	return func(e *corev1.Event) { e.Annotations = maps.Clone(a) }
}

func message(m string) func(*corev1.Event) { return func(e *corev1.Event) { e.Message = m } }

// nextPatch returns what the next request changes, without the annotations of the counter.
func (w *world) nextPatch() eventPatch {
	w.t.Helper()
	f := w.request()
	var p eventPatch
	if err := json.Unmarshal(f.r.Patch, &p); err != nil || f.r.Kind != Change {
		w.t.Fatalf("the next request is %+v: %v", f.r, err)
	}
	a := p.Metadata.Annotations
	if s, err := parseContributors(a[Annotation]); err != nil || len(s.sinks) != 1 || a[identity.Annotation] != w.digest.String() {
		w.t.Errorf("the annotations are %v", a)
	}
	delete(a, Annotation)
	delete(a, identity.Annotation)
	p.Metadata.ResourceVersion = ""
	return p
}

func TestPatchSaysWhatHasChanged(t *testing.T) {
	later := metav1.NewTime(noon.Add(time.Hour))
	is := func(value string) map[string]string { return map[string]string{"l": value} }
	nobodyMay := map[string]string{"l": "m", "$patch": "replace", "$retainKeys": "x"}
	reserved := maps.Clone(nobodyMay)
	for _, name := range []string{Annotation, identity.Annotation, identity.AnnotationPrefix + "other"} {
		reserved[name] = "forged"
	}
	for name, test := range map[string]struct {
		newStyle bool
		steps    []step // after which there is a patch
		want     eventPatch
	}{
		"the count": {
			steps: []step{says(), settles, says()},
			want:  eventPatch{Count: 2},
		},
		"not an older time": {
			steps: []step{says(), settles, says(at(-time.Hour))},
			want:  eventPatch{Count: 2},
		},
		"a newer time": {
			steps: []step{says(), settles, says(at(time.Hour))},
			want:  eventPatch{Count: 2, LastTimestamp: &later},
		},
		"not an older time, new style": {
			newStyle: true,
			steps:    []step{says(), says(), settles, says(at(-time.Hour))},
			want:     eventPatch{Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(noon)}},
		},
		"the newest time, whatever came last": {
			steps: []step{says(at(-time.Hour)), settles, says(at(time.Hour)), says()},
			want:  eventPatch{Count: 3, LastTimestamp: &later},
		},
		"the newest time of two writes": {
			steps: []step{says(), settles, says(at(time.Hour)), isRefused(Change, errTooMany), says()},
			want:  eventPatch{Count: 3, LastTimestamp: &later},
		},
		"the newest time, new style": {
			newStyle: true,
			steps:    []step{says(), settles, says(at(time.Hour)), says(noSeries)},
			want:     eventPatch{Series: &corev1.EventSeries{Count: 3, LastObservedTime: metav1.NewMicroTime(later.Time)}},
		},
		"no time before that of the Event": {
			newStyle: true,
			steps:    []step{says(noSeries, begun(time.Hour)), settles, says()},
			want:     eventPatch{Series: &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(later.Time)}},
		},
		"the time of a series, classic": {
			steps: []step{says(), settles, says(func(e *corev1.Event) {
				e.Series = &corev1.EventSeries{LastObservedTime: metav1.NewMicroTime(later.Time)}
			})},
			want: eventPatch{Count: 2, LastTimestamp: &later},
		},
		"a time of the past instead of one far in the future": {
			steps: []step{says(at(2 * time.Hour)), settles, arrives(time.Minute, at(time.Minute))},
			want:  eventPatch{Count: 2, LastTimestamp: &metav1.Time{Time: noon.Add(time.Minute)}},
		},
		"no older time instead of one a little in the future": {
			steps: []step{says(at(time.Hour)), settles, arrives(time.Minute, at(time.Minute))},
			want:  eventPatch{Count: 2},
		},
		"the last message, and all labels and annotations": {
			steps: []step{says(), settles, says(labels(map[string]string{"a": "1", "b": "1"}), annotations(is("m"))),
				addsAtNoon, says(labels(map[string]string{"b": "2"}), message("m"))},
			want: eventPatch{Count: 4, Message: "m", Metadata: patchMetadata{
				Labels: map[string]string{"a": "1", "b": "2"}, Annotations: is("m"),
			}},
		},
		"no labels of an earlier one": {
			steps: []step{says(labels(is("m"))), settles, says()},
			want:  eventPatch{Count: 2},
		},
		"nothing that nobody may report": {
			steps: []step{says(), settles, says(labels(nobodyMay), annotations(reserved))},
			want:  eventPatch{Count: 2, Metadata: patchMetadata{Labels: is("m"), Annotations: is("m")}},
		},
		"no labels and annotations that were refused": {
			steps: []step{says(), settles, says(labels(is("m")), annotations(is("m"))), isRefused(Change, errInvalid)},
			want:  eventPatch{Count: 2},
		},
		"labels again after a write without them": {
			steps: []step{says(), settles, says(labels(is("m"))), isRefused(Change, errInvalid), settles, says(labels(is("m")))},
			want:  eventPatch{Count: 3, Metadata: patchMetadata{Labels: is("m")}},
		},
		"labels again after what was refused with them is dropped": {
			steps: []step{says(), settles, says(labels(is("m"))), addsAtNoon, isRefused(Change, errInvalid), drops, says(labels(is("m")))},
			want:  eventPatch{Count: 3, Metadata: patchMetadata{Labels: is("m")}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, 1, 1, test.newStyle)
			w.play(test.steps)
			got := w.nextPatch()
			if test.want.Metadata.Annotations == nil {
				test.want.Metadata.Annotations = map[string]string{}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestCreatedEventIsTheOldestOccurrence(t *testing.T) {
	w := scenario{}.play(t)
	says(func(e *corev1.Event) {
		e.FirstTimestamp = metav1.NewTime(noon)
		e.Labels, e.Annotations = map[string]string{"l": "m", "$patch": "x"}, map[string]string{identity.AnnotationPrefix + "other": "forged"}
		e.Finalizers = []string{"example.com/f"}
		e.Series = &corev1.EventSeries{Count: 99}
		e.Name, e.GenerateName, e.UID, e.ResourceVersion = "posted", "p-", "u", "7"
	})(w)
	says(at(time.Hour), func(e *corev1.Event) { e.FirstTimestamp = e.LastTimestamp })(w)
	says()(w)
	r := w.request().r
	e := r.Event
	if r.Kind != Create || e.Count != 3 || !e.FirstTimestamp.Time.Equal(noon) || !e.LastTimestamp.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("%s: count %d, from %v to %v", r.Kind, e.Count, e.FirstTimestamp, e.LastTimestamp)
	}
	if e.Name != identity.Name("web-0", w.digest, 0) || e.GenerateName != "" || e.UID != "" || e.ResourceVersion != "" ||
		len(e.Finalizers) != 1 || e.Series != nil || len(e.Labels) != 1 || len(e.Annotations) != 2 {
		t.Errorf("metadata %+v, series %v", e.ObjectMeta, e.Series)
	}
	if s, err := parseContributors(e.Annotations[Annotation]); err != nil || s.creator != w.ours.instance {
		t.Errorf("shares %q", e.Annotations[Annotation])
	}
}

// What is withdrawn is charged to nobody, and the rest of its series is as it was.
func TestWithdrawnOccurrenceLeavesNothing(t *testing.T) {
	w := scenario{}.play(t)
	c := w.ours.counter
	addsAtNoon(w)
	size, first := c.Size(), c.Last()
	addsAtNoon(w)
	if out := c.Withdraw(c.Last()+1, occurrence.NotReplicated); out != nil {
		t.Errorf("%d settle that are not there", len(out))
	}
	for _, want := range []int{size, 0} {
		out := c.Withdraw(c.Last(), occurrence.NotReplicated)
		if len(out) != 1 || out[0].End.Reason != occurrence.NotReplicated || c.Size() != want {
			t.Fatalf("%d settle, and the size is %d, want %d", len(out), c.Size(), want)
		}
		if want > 0 && c.Last() != first {
			t.Errorf("the last is %d, want %d", c.Last(), first)
		}
	}
}

func TestBatchIsBounded(t *testing.T) {
	w := scenario{}.play(t)
	for range 3 * MaxBatch {
		adds(w)
	}
	begins(w)
	if got := w.flights[0].r.plan.count; got != MaxBatch {
		t.Errorf("the first write holds %d", got)
	}
	w.settleDown()
	if written, _ := w.check(); written != 3*MaxBatch || w.server.Counted() != written {
		t.Errorf("written %d, counted %d", written, w.server.Counted())
	}
}
