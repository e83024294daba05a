package counter

import (
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestTimesOnlyMoveOn(t *testing.T) {
	w := quiet(t, false)
	at := func(d time.Duration) func(*corev1.Event) {
		return func(e *corev1.Event) { e.LastTimestamp = metav1.NewTime(noon.Add(d)) }
	}
	w.reportEvent(at(0))
	w.settleDown()
	w.reportEvent(at(-time.Hour))
	if p := w.nextPatch(); p.LastTimestamp != nil || p.Count != 2 {
		t.Errorf("an older occurrence is written as %+v", p)
	}
	w.reportEvent(at(time.Hour))
	if p := w.nextPatch(); p.LastTimestamp == nil || !p.LastTimestamp.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("a newer occurrence is written as %+v", p)
	}

	w = quiet(t, true)
	observed := func(d time.Duration) func(*corev1.Event) {
		return func(e *corev1.Event) {
			e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(noon.Add(d))}
		}
	}
	w.reportEvent(observed(0))
	w.reportEvent(observed(0))
	w.settleDown()
	w.reportEvent(observed(-time.Hour))
	if p := w.nextPatch(); p.Series == nil || p.Series.Count != 3 || !p.Series.LastObservedTime.Time.Equal(noon) {
		t.Errorf("an older occurrence is written as %+v", p.Series)
	}
}

func TestPatchSaysWhatHasChanged(t *testing.T) {
	w := quiet(t, false)
	w.reportEvent(func(*corev1.Event) {})
	w.settleDown()
	w.reportAwaited(func(e *corev1.Event) {
		e.Labels = map[string]string{"a": "1", "b": "1"}
		e.Annotations = map[string]string{"c": "1", identity.Annotation: "forged", Annotation: "forged"}
	})
	w.reportEvent(func(e *corev1.Event) {
		e.Message = "(combined from similar events): another"
		e.Labels = map[string]string{"b": "2"}
	})
	p := w.nextPatch()
	if p.Message != "(combined from similar events): another" {
		t.Errorf("message %q", p.Message)
	}
	if l := p.Metadata.Labels; l["a"] != "1" || l["b"] != "2" {
		t.Errorf("labels %v", l)
	}
	a := p.Metadata.Annotations
	if s, err := parseContributors(a[Annotation]); a["c"] != "1" || a[identity.Annotation] != w.digest.String() || err != nil || len(s.sinks) != 1 {
		t.Errorf("annotations %v", a)
	}
	w.settleDown()
	w.reportEvent(func(*corev1.Event) {})
	if p := w.nextPatch(); p.Metadata.Labels != nil || len(p.Metadata.Annotations) != 2 {
		t.Errorf("what has not changed is written: %+v", p.Metadata)
	}
}

// What nobody may report is not written, with whatever verb.
func TestAnnotationsAndLabelsThatNobodyMayReportAreLeftOut(t *testing.T) {
	reserved := map[string]string{"good": "1", identity.AnnotationPrefix + "other": "forged", "$patch": "replace", "$retainKeys": "x"}
	want := func(t *testing.T, labels, annotations map[string]string) {
		t.Helper()
		if len(labels) != 1 || labels["good"] != "1" || len(annotations) != 3 || annotations["good"] != "1" {
			t.Errorf("labels %v, annotations %v", labels, annotations)
		}
	}
	say := func(e *corev1.Event) {
		e.Labels, e.Annotations = maps.Clone(reserved), maps.Clone(reserved)
		delete(e.Labels, identity.AnnotationPrefix+"other") // it is no annotation
	}
	w := quiet(t, false)
	w.reportEvent(say)
	f := w.ask(w.writers[0], Create)
	want(t, f.r.Event.Labels, f.r.Event.Annotations)
	object, err := do(w.server, f.r)
	w.answer(f, object, err)
	w.reportEvent(say)
	p := w.nextPatch()
	want(t, p.Metadata.Labels, p.Metadata.Annotations)
}

// What its reporter may not change, and what the apiserver has refused, is left out of
// what is written.
func TestLabelsAndAnnotationsAreLeftOutWhereTheyMust(t *testing.T) {
	say := func(e *corev1.Event) {
		e.Labels, e.Annotations = map[string]string{"said": "1"}, map[string]string{"said": "1"}
	}
	for name, test := range map[string]struct {
		before     func(*Counter)
		createOnly bool
		said       string
	}{
		"as usual":                    {func(*Counter) {}, false, "1"},
		"refused before":              {func(a *Counter) { a.bare = true }, false, ""},
		"of somebody who may not":     {func(*Counter) {}, true, ""},
		"refused, of one who may not": {func(a *Counter) { a.bare = true }, true, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t, false)
			w.reportEvent(func(*corev1.Event) {})
			w.settleDown()
			event := w.event.DeepCopy()
			say(event)
			w.writers[0].add(&occurrence.Occurrence{Weight: 1, Client: "c", Total: 1, User: "u", CreateOnly: test.createOnly}, event)
			test.before(w.writers[0].counter)
			p := w.nextPatch()
			if p.Metadata.Labels["said"] != test.said || p.Metadata.Annotations["said"] != test.said || p.Metadata.Annotations[identity.Annotation] != w.digest.String() {
				t.Errorf("written with %+v", p.Metadata)
			}
		})
	}
}

// An Event that cannot be changed may have had no room for labels; the next one is
// another.
func TestNextEventHasTheLabelsThatWereRefused(t *testing.T) {
	w := quiet(t, false)
	squat := w.squat(0, "v1", nil)
	w.reportEvent(func(e *corev1.Event) { e.Labels = map[string]string{"l": "m"} })
	w.step(w.writers[0], true, true) // it exists
	w.step(w.writers[0], true, true) // a read
	for range 2 {                    // with labels and without
		w.answer(w.ask(w.writers[0], Change), nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, squat.Name, nil))
	}
	if f := w.ask(w.writers[0], Create); f.r.Event.Labels["l"] != "m" || f.r.Name == squat.Name {
		t.Errorf("%s is created with labels %v", f.r.Name, f.r.Event.Labels)
	}
}

// Labels that were refused are left out of that write alone.
func TestLabelsAreWrittenAgainAfterAWriteWithoutThem(t *testing.T) {
	w := quiet(t, false)
	labels := func(e *corev1.Event) { e.Labels = map[string]string{"l": "m"} }
	w.reportEvent(func(*corev1.Event) {})
	w.settleDown()
	w.reportEvent(labels)
	w.answer(w.ask(w.writers[0], Change), nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "", nil))
	w.settleDown() // without them
	w.reportEvent(labels)
	if p := w.nextPatch(); p.Metadata.Labels["l"] != "m" || p.Count != 3 {
		t.Errorf("written as %+v", p)
	}
}

func TestCreatedEventIsTheOldestOccurrence(t *testing.T) {
	w := quiet(t, false)
	w.reportEvent(func(e *corev1.Event) {
		e.FirstTimestamp, e.LastTimestamp = metav1.NewTime(noon), metav1.NewTime(noon)
		e.Finalizers = []string{"example.com/f"}
		e.Series = &corev1.EventSeries{Count: 99}
		e.Name, e.GenerateName, e.UID, e.ResourceVersion = "posted", "p-", "u", "7"
	})
	w.reportEvent(func(e *corev1.Event) {
		e.FirstTimestamp, e.LastTimestamp = metav1.NewTime(noon.Add(time.Hour)), metav1.NewTime(noon.Add(time.Hour))
	})
	r, _ := nextRequest(w.writers[0].counter, w.may, func() {})
	e := r.Event
	if r.Kind != Create || e.Count != 2 || !e.FirstTimestamp.Time.Equal(noon) || !e.LastTimestamp.Time.Equal(noon.Add(time.Hour)) {
		t.Errorf("%s: count %d, from %v to %v", r.Kind, e.Count, e.FirstTimestamp, e.LastTimestamp)
	}
	if e.Name != identity.Name("web-0", w.digest, 0) || e.GenerateName != "" || e.UID != "" || e.ResourceVersion != "" ||
		len(e.Finalizers) != 1 || e.Series != nil {
		t.Errorf("metadata %+v, series %v", e.ObjectMeta, e.Series)
	}
	if s, err := parseContributors(e.Annotations[Annotation]); err != nil || s.creator != w.writers[0].instance {
		t.Errorf("shares %q", e.Annotations[Annotation])
	}
}

func TestBatchIsBounded(t *testing.T) {
	w := quiet(t, false)
	for range 3 * MaxBatch {
		w.writers[0].add(&occurrence.Occurrence{Weight: 1, Settled: func(occurrence.Settlement) {}}, w.event)
	}
	w.start(w.writers[0])
	if got := w.flights[0].r.plan.count; got != MaxBatch {
		t.Errorf("the first write holds %d", got)
	}
	w.settleDown()
	if written, _ := w.check(); written != 3*MaxBatch || w.server.Counted() != written {
		t.Errorf("written %d, counted %d", written, w.server.Counted())
	}
}
