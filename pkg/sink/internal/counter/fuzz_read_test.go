package counter

import (
	"encoding/json"
	"errors"
	"math"
	"testing"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// reading is a writer with a server whose objects anybody changes.
type reading struct {
	*testing.T
	*writer
	server *sinktest.Server
	event  *corev1.Event
	may    Access
	script []byte

	// What the input puts into objects.
	digest, shares, message string
	uid, version            string
	count                   int32

	carried uint64           // by any write
	seen    map[string]int64 // counts of what was read, by resourceVersion
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
	f.event = sinktest.Event(kind&1 != 0)
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
	f.addAt(f.sequence+1+uint64(kind), o, f.event)
}

// foreignTo is what somebody makes of the object under a name, nil if there is none.
func (f *reading) foreignTo(name string, how byte, stored *corev1.Event) *corev1.Event {
	e := f.event.DeepCopy()
	e.UID, e.ResourceVersion, e.Count = types.UID(f.uid), f.version, f.count
	own := f.counter.digest.String()
	if how&1 != 0 && stored != nil {
		e = stored.DeepCopy()
	}
	e.Name = name
	if e.Annotations == nil {
		e.Annotations = map[string]string{identity.Annotation: own}
	}
	switch how >> 1 & 3 {
	case 1:
		e.Annotations[identity.Annotation] = f.digest
	case 2:
		e.Annotations[Annotation] = f.shares
	case 3:
		s, _ := parseContributors(e.Annotations[Annotation])
		s.sinks = set(s.sinks, f.counter.instance, f.guess(), maxSinks)
		e.Annotations[Annotation] = s.String()
	}
	switch how >> 3 & 7 {
	case 1:
		e.Count = f.count
		e.Series = &corev1.EventSeries{Count: f.count}
	case 2:
		e.Message = f.message
	case 3:
		e.InvolvedObject.Name = f.message
	case 4:
		e.UID = types.UID(f.uid)
	case 5:
		e.ResourceVersion = f.version
	case 6:
		e.Annotations = nil
	case 7:
		e.EventTime = metav1.MicroTime{}
	}
	return e
}

// guess is a sequence that somebody may put into our share.
func (f *reading) guess() uint64 {
	switch b := f.next(); b % 6 {
	case 0:
		return math.MaxUint64
	case 1:
		return f.carried
	case 2:
		return f.carried + uint64(b)
	case 3:
		return f.sequence
	case 4:
		return f.sequence + 1
	default:
		return uint64(b)
	}
}

// step has the account make its next request, and answers it.
func (f *reading) step(how byte) {
	a := f.counter
	r, out := nextRequest(a, f.may, func() {})
	f.take(out)
	if r == nil {
		return
	}
	if r.Kind != Read {
		f.wants(r)
	}
	var object *corev1.Event
	var err error
	switch how % 8 {
	case 0, 1, 2:
		object, err = do(f.server, r)
	case 3: // it takes effect, and the answer is lost
		do(f.server, r)
		err = apierrors.NewInternalError(errors.New("lost"))
	case 4:
		err = apierrors.NewInternalError(errors.New("lost"))
	case 5:
		err = apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, r.Name, nil)
	case 6:
		err = apierrors.NewConflict(sinktest.EventsResource, r.Name, errors.New("it has been modified"))
	case 7:
		if object = r.Event.DeepCopy(); object == nil {
			object = f.foreignTo(r.Name, f.next(), f.server.Objects[r.Name])
		}
		object.UID, object.ResourceVersion = types.UID(f.uid), f.version
	}
	private := a.exclusive || a.nonce != 0
	out = answer(a, r, object, err)
	if object != nil {
		f.seen[object.ResourceVersion] = countOf(object)
	}
	if r.Kind == Read && object != nil && !private {
		f.wantsOnlyWhatIsSaid(out, object)
	}
	f.take(out)
}

// wants checks a write before it is answered.
func (f *reading) wants(r *Request) {
	f.carried = max(f.carried, r.plan.upTo)
	if r.Kind == Create {
		if n := countOf(r.Event); n < 1 {
			f.Fatalf("an Event is created with a count of %d", n)
		}
		return
	}
	var p eventPatch
	if err := json.Unmarshal(r.Patch, &p); err != nil {
		f.Fatal(err)
	}
	before, ok := f.seen[p.Metadata.ResourceVersion]
	if !ok {
		f.Fatalf("a patch of %q, which was never read", p.Metadata.ResourceVersion)
	}
	count := max(1, int64(p.Count))
	if p.Series != nil {
		count = int64(p.Series.Count)
	}
	if count < before {
		f.Fatalf("a count of %d is patched to %d", before, count)
	}
}

// wantsOnlyWhatIsSaid checks what settles with an object that was read: nothing is
// counted on it but what it says that it has of us, and that only if we can have
// written it.
func (f *reading) wantsOnlyWhatIsSaid(out []Settled, object *corev1.Event) {
	s, err := parseContributors(object.Annotations[Annotation])
	mine, _ := find(s.sinks, f.counter.instance)
	for i := range out {
		if !out[i].End.Counted() {
			continue
		}
		if err != nil || object.Annotations[identity.Annotation] != f.counter.digest.String() {
			f.Fatalf("%d is counted on an object without our annotations", out[i].Sequence)
		}
		if mine > f.carried || out[i].Sequence > mine {
			f.Fatalf("%d is counted on an object that has us up to %d, where writes have carried what came up to %d", out[i].Sequence, mine, f.carried)
		}
	}
}

// FuzzRead reads anything at any time: whatever is done to the objects, nothing ends
// twice or is counted without having been written, and no count goes down.
func FuzzRead(f *testing.F) {
	own := occurrence.Digest(identity.Of(sinktest.Event(false))).String()
	shares := "v1;s=" + sinkA + ":12;n=" + sinkB + ":2"
	const add, step, tamper, expire, giveUp, rights, ops = 0, 1, 2, 3, 4, 5, 8
	for kind := range byte(16) {
		f.Add([]byte{kind, add, 1, step, 0, add, 5, step, 0}, own, shares, "", "uid", "1", int32(3))
		f.Add([]byte{kind, add, 1, step, 3, tamper, 1 | 6<<3, step, 0, step, 0, step, 0}, own, shares, "", "uid", "1", int32(3))
		f.Add([]byte{kind, add, 5, tamper, 3 << 1, 0, step, 0, step, 0, step, 0, step, 0}, own, shares, "x", "uid", "1", int32(math.MaxInt32))
		f.Add([]byte{kind, add, 5, step, 0, add, 5, step, 3, expire, step, 0, step, 0}, own, shares, "x", "uid", "1", int32(-1))
		// A share of what no write has carried yet.
		f.Add([]byte{kind, add, 5, step, 3, step, 0, add, 5, tamper, 1 | 3<<1, 3, step, 0, step, 0}, own, shares, "x", "uid", "1", int32(2))
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
		f := &reading{
			T: t, writer: newWriter(t, occurrence.Digest{}), server: sinktest.NewServer(), may: all, script: script,
			digest: digest, shares: shares, message: message, uid: uid, version: version, count: count,
			seen: make(map[string]int64),
		}
		f.instance = Contributor([]byte(sinkA))
		f.counter = New(f.instance, f.target(f.next()))
		f.counter.identify()
		for len(f.script) > 0 {
			switch f.next() % ops {
			case add:
				f.occurs(f.next())
			case tamper:
				name := f.counter.name()
				if e := f.foreignTo(name, f.next(), f.server.Objects[name]); e.ResourceVersion != "" && e.UID != "" {
					f.server.Objects[name] = e
				}
			case expire:
				f.server.Expire()
			case giveUp:
				f.take(f.counter.Drop(f.sequence-uint64(f.next()), occurrence.RetriesExhausted, nil))
			case rights:
				b := f.next()
				f.may = Access{Change: b%3 != 2, Unmarked: b&4 != 0}
				f.server.Strips = b&8 != 0
			default: // step, which makes most of the difference
				f.step(f.next())
			}
		}
		// When nothing happens any more, all ends.
		f.may = all
		for i := 0; len(f.counter.pending) > 0; i++ {
			if i > 100 {
				t.Fatalf("%d entries do not end", len(f.counter.pending))
			}
			f.step(0)
		}
		f.take(nil)
	})
}
