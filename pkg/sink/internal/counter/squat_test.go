package counter

import (
	"fmt"
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// These tests are about a squatter: somebody who may create Events, knows what will
// be reported, the name that it will have, and the instance that writes it, and
// makes the Event first.

// squat makes an Event of the series under one of its names, with shares.
func (w *world) squat(suffix int, shares string, change func(*corev1.Event)) *corev1.Event {
	event := w.event.DeepCopy()
	event.Name = identity.Name(event.InvolvedObject.Name, w.digest, suffix)
	event.UID = "squatted"
	event.Annotations = map[string]string{identity.Annotation: w.digest.String(), Annotation: shares}
	if change != nil {
		change(event)
	}
	return w.server.Store(event)
}

// gained is by how much all counts are higher than those of the squatter's Events.
func (w *world) gained(squats ...*corev1.Event) int64 {
	sum := w.server.Counted()
	for _, e := range squats {
		sum -= countOf(e)
	}
	return sum
}

func TestSquatterTakesNothingFromTheCount(t *testing.T) {
	other := numbered(7)
	for name, test := range map[string]struct {
		shares  func(w *writer) string
		change  func(*corev1.Event)
		foreign bool // it is left alone
	}{
		"that claims all there will ever be": {
			func(w *writer) string { return fmt.Sprintf("v1;s=%s:%d", w.instance, uint64(math.MaxUint64)) }, nil, true},
		"that claims some of what is pending": {
			func(w *writer) string { return fmt.Sprintf("v1;s=%s:%d", w.instance, 1500) }, nil, true},
		"that claims what comes later": {
			func(w *writer) string { return fmt.Sprintf("v1;s=%s:%d", w.instance, 4000) }, nil, true},
		"that claims what was before": {
			func(w *writer) string { return fmt.Sprintf("v1;s=%s:%d", w.instance, 999) }, nil, false},
		"that says we made it, with others since": {
			func(w *writer) string { return fullList(w.instance) }, nil, false},
		"that claims everything for another instance": {
			func(*writer) string { return fmt.Sprintf("v1;s=%s:%d", other, uint64(math.MaxUint64)) }, nil, false},
		"that names as many clients as there can be": {
			func(*writer) string { return manyClients(maxClients) }, nil, false},
		"that names more clients than there can be": {
			func(*writer) string { return manyClients(maxClients + 100) }, nil, false},
		"with much of what nobody knows": {
			func(*writer) string { return "v1;x=" + strings.Repeat("x", maxUnknown) }, nil, true},
		"with a very long list": {
			func(*writer) string { return manyClients(10_000) }, nil, true},
		"that counts as much as can be": {
			func(*writer) string { return "v1" }, func(e *corev1.Event) { e.Count = math.MaxInt32 }, true},
		"about another object": {
			func(*writer) string { return "v1" }, func(e *corev1.Event) { e.InvolvedObject.Name = "harmless" }, true},
		"for another reason": {
			func(*writer) string { return "v1" }, func(e *corev1.Event) { e.Reason = "Harmless" }, true},
		"of another type": {
			func(*writer) string { return "v1" }, func(e *corev1.Event) { e.Type = "Other" }, true},
		"of the other style": {
			func(*writer) string { return "v1" }, func(e *corev1.Event) { e.EventTime = metav1.NowMicro() }, true},
		"that shows the count of a series": {
			func(*writer) string { return "v1" }, func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 7} }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := quiet(t, false)
			writer := w.writers[0]
			squat := w.squat(0, test.shares(writer), test.change)
			const reported = 3
			for i := range reported {
				writer.addAt(uint64(1000*(i+1)), &occurrence.Occurrence{Weight: 1, Settled: func(occurrence.Settlement) {}}, w.event)
			}
			w.settleDown()
			if written, uncertain := w.check(); written != reported || uncertain != 0 {
				t.Errorf("written %d, uncertain %d", written, uncertain)
			}
			if gained := w.gained(squat); gained != reported {
				t.Errorf("counted %d, reported %d", gained, reported)
			}
			if now := w.server.Objects[squat.Name]; test.foreign != (now.ResourceVersion == squat.ResourceVersion) {
				t.Errorf("its Event is left alone: %v, want %v", !test.foreign, test.foreign)
			}
		})
	}
}

// What no write has carried is in no count, though its sequence is known.
func TestSquatterDoesNotClaimWhatIsYetToBeWritten(t *testing.T) {
	w := quiet(t, false)
	writer := w.writers[0]
	writer.addAt(1000, &occurrence.Occurrence{Weight: 1}, w.event)
	w.start(writer)
	writer.addAt(2000, &occurrence.Occurrence{Weight: 1}, w.event)
	squat := w.squat(0, fmt.Sprintf("v1;s=%s:%d", writer.instance, 2000), nil)
	w.settleDown()
	if written, _ := w.check(); written != 2 || w.gained(squat) != 2 {
		t.Errorf("written %d, counted %d", written, w.gained(squat))
	}
}

// Who makes an Event in place of one that has gone is found out as well.
func TestSquatterInPlaceOfAnEventThatHasGoneIsLeftAlone(t *testing.T) {
	w := quiet(t, false)
	w.record()
	w.settleDown()
	w.server.Expire()
	squat := w.squat(0, "v1", func(e *corev1.Event) { e.InvolvedObject.Name = "harmless" })
	w.record()
	w.settleDown()
	w.check()
	if now := w.server.Objects[squat.Name]; now.ResourceVersion != squat.ResourceVersion || len(w.server.Objects) != 2 {
		t.Errorf("%d objects, the squatter's says %+v", len(w.server.Objects), now)
	}
}

func fullList(creator Contributor) string {
	s := contributors{creator: creator}
	for i := range maxSinks {
		s.sinks = append(s.sinks, contribution{numbered(i), math.MaxUint64})
	}
	return s.String()
}

func manyClients(n int) string {
	var s contributors
	for i := range n {
		s.clients = append(s.clients, contribution{numbered(i), 1})
	}
	return s.String()
}

// The note of a new-style Event cannot be changed later, so it has to be right.
func TestSquatterSaysNothingElseInANewStyleEvent(t *testing.T) {
	w := quiet(t, true)
	squat := w.squat(0, "v1", func(e *corev1.Event) { e.Message = "all is well" })
	w.record()
	w.settleDown()
	w.check()
	if now := w.server.Objects[squat.Name]; now.ResourceVersion != squat.ResourceVersion || len(w.server.Objects) != 2 {
		t.Errorf("%d objects, the squatter's says %+v", len(w.server.Objects), now)
	}
}

// Whatever is said of a classic Event, what is stored is what was last reported.
func TestMessageOfASquattedEventIsReplaced(t *testing.T) {
	w := quiet(t, false)
	squat := w.squat(0, "v1", func(e *corev1.Event) { e.Message = "all is well" })
	w.record()
	w.start(w.writers[0])
	w.finish(false)
	w.start(w.writers[0])
	w.finish(false)
	if p := w.nextPatch(); p.Message != w.event.Message {
		t.Errorf("the message of %s is patched to %q", squat.Name, p.Message)
	}
}

// An Event that its maker has filled up refuses what is to be added.
func TestEventThatTakesNoPatchIsLeftAlone(t *testing.T) {
	w := quiet(t, false)
	squat := w.squat(0, "v1", nil)
	w.record()
	for range 10 {
		if !w.start(w.writers[0]) {
			break
		}
		f := w.flights[0]
		w.flights = nil
		if f.r.Kind == Change {
			w.answer(f, nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, squat.Name, nil))
			continue
		}
		object, err := do(w.server, f.r)
		w.answer(f, object, err)
	}
	if written, _ := w.check(); written != 1 || w.gained(squat) != 1 {
		t.Errorf("written %d, counted %d", written, w.gained(squat))
	}
}

// A share can be forged by somebody who may patch; from then on the Event is theirs.
func TestForgedShareInAnEventOfOursCostsNothing(t *testing.T) {
	w := quiet(t, false)
	w.record()
	w.settleDown()
	name := identity.Name("web-0", w.digest, 0)
	w.server.Objects[name].Annotations[Annotation] = fmt.Sprintf("v1;s=%s:%d", w.writers[0].instance, uint64(math.MaxUint64))
	forged := w.server.Store(w.server.Objects[name])
	before := countOf(forged)
	w.record()
	w.settleDown()
	written, _ := w.check()
	if got := w.gained(forged) + before; got != written {
		t.Errorf("counted %d, written %d", got, written)
	}
}
