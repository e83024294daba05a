package counter

import (
	"math"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// reading is a world with one writer, whose objects anybody changes as a script says.
type reading struct {
	*world
	script  []byte
	foreign *corev1.Event // has what somebody puts into objects
}

// next is the next byte of the script, 0 at its end.
func (f *reading) next() (b byte) {
	if len(f.script) > 0 {
		b, f.script = f.script[0], f.script[1:]
	}
	return b
}

// target is the kind of series that a byte stands for.
func (f *reading) target(kind byte) *occurrence.Target {
	t := &occurrence.Target{Event: f.event, Name: "web-0", Combined: kind&2 != 0}
	if kind&4 != 0 {
		t.Digest = identity.OfGroup(f.event, "key")
	}
	if kind&8 != 0 {
		begun := f.event.DeepCopy()
		t.Begun, begun.Message = begun, "as it was"
	}
	return t
}

func (f *reading) occurs(kind byte) {
	o := &occurrence.Occurrence{Weight: int64(kind & 3)}
	if kind&4 != 0 {
		o.Settled = func(occurrence.Settlement) {}
	}
	if kind&8 != 0 {
		o.Client, o.Total = string('a'+rune(kind>>6)), int64(kind&7)
		o.Weight = min(o.Weight, o.Total)
	} else if kind&16 != 0 {
		o.Weight = math.MaxInt32 - 1
	}
	o.CreateOnly, o.User = kind&32 != 0, string('u'+rune(kind>>6))
	f.ours.put(f.ours.sequence+1+uint64(kind), o, f.event)
}

// tamper returns what somebody makes of the object under a name.
func (f *reading) tamper(name string, how byte) *corev1.Event {
	e := f.event.DeepCopy()
	e.UID, e.ResourceVersion, e.Count = f.foreign.UID, f.foreign.ResourceVersion, f.foreign.Count
	if stored := f.server.Objects[name]; how&1 != 0 && stored != nil {
		e = stored.DeepCopy()
	}
	e.Name = name
	if e.Annotations == nil {
		e.Annotations = map[string]string{identity.Annotation: f.ours.counter.digest.String()}
	}
	switch how >> 1 & 3 {
	case 1:
		e.Annotations[identity.Annotation] = f.foreign.Annotations[identity.Annotation]
	case 2:
		e.Annotations[Annotation] = f.foreign.Annotations[Annotation]
	case 3:
		s, _ := parseContributors(e.Annotations[Annotation])
		s.sinks = set(s.sinks, f.ours.instance, f.guess(), maxSinks)
		e.Annotations[Annotation] = s.String()
	}
	switch how >> 3 & 7 {
	case 1:
		e.Count, e.Series = f.foreign.Count, &corev1.EventSeries{Count: f.foreign.Count}
	case 2:
		e.Message = f.foreign.Message
	case 3:
		e.InvolvedObject.Name = f.foreign.Message
	case 4:
		e.UID = f.foreign.UID
	case 5:
		e.ResourceVersion = f.foreign.ResourceVersion
	case 6:
		e.Annotations = nil
	case 7:
		e.EventTime = metav1.MicroTime{}
	}
	return e
}

// guess is a sequence that somebody may put into our share.
func (f *reading) guess() uint64 {
	b := uint64(f.next())
	guesses := []uint64{math.MaxUint64, f.ours.carried, f.ours.carried + b, f.ours.sequence, f.ours.sequence + 1, b}
	return guesses[b%6]
}

// step makes the next request, if there is one, and answers it.
func (f *reading) step(how byte) {
	if !f.start(f.ours) || len(f.flights) == 0 {
		return
	}
	flight := f.flights[0]
	f.flights = nil
	var object *corev1.Event
	var err error
	switch how % 8 {
	case 0, 1, 2:
		object, err = f.do(flight)
	case 3: // it takes effect, and the answer is lost
		f.do(flight)
		err = errLost
	case 4:
		err = errLost
	case 5:
		err = errInvalid
	case 6:
		err = errConflict
	case 7:
		if object = flight.r.Event.DeepCopy(); object == nil {
			object = f.tamper(flight.r.Name, f.next())
		}
		object.UID, object.ResourceVersion = f.foreign.UID, f.foreign.ResourceVersion
	}
	f.answer(flight, object, err)
}

// FuzzRead reads anything at any time: whatever is done to the objects, nothing ends
// twice or is counted without having been written, and no count goes down.
func FuzzRead(f *testing.F) {
	own := occurrence.Digest(identity.Of(sinktest.Event(false))).String()
	shares := "v1;s=" + sinkA + ":12;n=" + sinkB + ":2"
	const add, step, tamper, expire, giveUp, rights, forget, ops = 0, 1, 2, 3, 4, 5, 6, 9
	for kind := range byte(16) {
		f.Add([]byte{kind, add, 1, step, 0, add, 5, step, 0}, own, shares, "", "uid", "1", int32(3))
		f.Add([]byte{kind, add, 1, step, 3, tamper, 1 | 6<<3, step, 0, step, 0, step, 0}, own, shares, "", "uid", "1", int32(3))
		f.Add([]byte{kind, add, 5, tamper, 3 << 1, 0, step, 0, step, 0, step, 0, step, 0}, own, shares, "x", "uid", "1", int32(math.MaxInt32))
		f.Add([]byte{kind, add, 5, step, 0, add, 5, step, 3, expire, step, 0, step, 0}, own, shares, "x", "uid", "1", int32(-1))
		// A share of what no write has carried yet.
		f.Add([]byte{kind, add, 5, step, 3, step, 0, add, 5, tamper, 1 | 3<<1, 3, step, 0, step, 0}, own, shares, "x", "uid", "1", int32(2))
		f.Add([]byte{kind, add, 5, step, 0, forget, tamper, 1 | 6<<3, add, 5, step, 0, step, 0}, own, shares, "", "uid", "1", int32(2))
		f.Add([]byte{kind, rights, 1, add, 5, step, 3, add, 5, giveUp, 0, step, 0, step, 0}, own, shares, "x", "", "", int32(-1))
	}
	f.Fuzz(func(t *testing.T, script []byte, digest, shares, message, uid, version string, count int32) {
		for _, said := range []string{digest, shares, message, uid, version} {
			if !utf8.ValidString(said) {
				return // JSON is valid UTF-8
			}
		}
		if len(script) > 200 {
			return
		}
		f := &reading{world: newWorld(t, 1, 1, len(script) > 0 && script[0]&1 != 0), script: script, foreign: &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{
				UID: types.UID(uid), ResourceVersion: version,
				Annotations: map[string]string{identity.Annotation: digest, Annotation: shares},
			},
			Message: message, Count: count,
		}}
		f.ours.instance = Contributor([]byte(sinkA))
		f.ours.counter = New(f.ours.instance, f.target(f.next()), nil)
		f.ours.counter.identify()
		for len(f.script) > 0 {
			switch f.next() % ops {
			case add:
				f.occurs(f.next())
			case tamper:
				name := f.ours.counter.name()
				if e := f.tamper(name, f.next()); e.ResourceVersion != "" && e.UID != "" {
					f.server.Objects[name] = e
				}
			case expire:
				f.server.Expire()
			case giveUp:
				f.ours.take(f.ours.counter.Drop(f.ours.sequence-uint64(f.next()), occurrence.RetriesExhausted, nil))
			case rights:
				b := f.next()
				f.may = Access{Change: b%3 != 2, Unmarked: b&4 != 0}
				f.server.Strips = b&8 != 0
			case forget:
				if f.ours.isIdle() {
					f.ours.recalls()
				}
			default: // step, which makes most of the difference
				f.step(f.next())
			}
		}
		// When nothing happens any more, all ends.
		f.may = all
		for i := 0; len(f.ours.counter.pending) > 0; i++ {
			if i > 100 {
				t.Fatalf("%d entries do not end", len(f.ours.counter.pending))
			}
			f.step(0)
		}
		f.check()
	})
}
