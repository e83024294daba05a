package counter

import (
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
)

// stateOf returns a counter without pending occurrences that has observed an Event.
func stateOf(event *corev1.Event) *Counter {
	c := New(NewInstance(), &occurrence.Target{Event: event, Name: event.InvolvedObject.Name}, nil)
	o, _ := c.observe(event)
	c.observed = o
	return c
}

// recalled returns a new counter of the series with the state of another.
func recalled(c *Counter, event *corev1.Event) *Counter {
	out := New(c.instance, &occurrence.Target{Event: event, Name: event.InvolvedObject.Name}, nil)
	out.SetState(c.State())
	return out
}

func someContributor(rng *rand.Rand) (c Contributor) {
	var b [10]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return newContributor(b)
}

func someContributions(rng *rand.Rand, most int) (list []contribution) {
	for range rng.IntN(most + 1) {
		list = append(list, contribution{someContributor(rng), rng.Uint64() >> rng.IntN(64)})
	}
	return list
}

// Whatever a counter knows of its Event, its state has all that a later write depends on.
func TestStateHasAllThatANextWriteNeeds(t *testing.T) {
	for seed := range uint64(2000) {
		rng := rand.New(rand.NewPCG(seed, 0))
		event := sinktest.Event(rng.IntN(2) == 0)
		event.UID = []types.UID{"0a1b2c3d-0000-1111-2222-333344445555", "0A1B2C3D-0000-1111-2222-333344445555", "uid-1", "", "0a1b2c3d-0000-1111-2222-33334444555x"}[rng.IntN(5)]
		event.ResourceVersion = []string{"12345678", "0", "", "007", "18446744073709551615", "opaque"}[rng.IntN(6)]
		event.LastTimestamp = metav1.Unix(rng.Int64N(1<<33), 0)
		if event.EventTime.IsZero() {
			event.Count = rng.Int32()
		} else {
			event.LastTimestamp = metav1.Time{}
			event.Series = &corev1.EventSeries{Count: rng.Int32(), LastObservedTime: metav1.NewMicroTime(time.UnixMicro(rng.Int64N(1 << 52)))}
		}
		posted := event.DeepCopy()
		if rng.IntN(4) == 0 {
			event.Message = "that of somebody else"
		}
		c := stateOf(event)
		c.message = hashOf(posted.Message)
		c.mustRead, c.exclusive = rng.IntN(2) == 0, rng.IntN(2) == 0
		c.suffix, c.nonce = rng.IntN(3), uint64(rng.IntN(2))*rng.Uint64()
		c.author = author{user: rng.Uint64(), known: true, createOnly: true}
		s := &c.observed.contributors
		s.creator = []Contributor{{}, c.instance, someContributor(rng)}[rng.IntN(3)]
		s.sinks, s.clients = someContributions(rng, maxSinks-1), someContributions(rng, maxClients)
		if rng.IntN(2) == 0 { // as usual
			s.clients = []contribution{{someContributor(rng), uint64(c.observed.count + rng.Int64N(2))}}
		}
		if rng.IntN(2) == 0 {
			s.sinks = append(s.sinks, contribution{contributor: c.instance})
		}
		if rng.IntN(2) == 0 {
			s.pushedOut = []Contributor{}
			for range rng.IntN(maxPushedOut) {
				s.pushedOut = append(s.pushedOut, someContributor(rng))
			}
		}
		for range rng.IntN(3) {
			s.unknown = append(s.unknown, "z="+strings.Repeat("x", rng.IntN(100)))
		}
		got := recalled(c, posted)
		want := *c.observed
		want.meta, want.recalled = &corev1.Event{ObjectMeta: metav1.ObjectMeta{ResourceVersion: event.ResourceVersion}}, true
		want.last = got.observed.last // another location
		if !reflect.DeepEqual(*got.observed, want) || got.author != c.author {
			t.Fatalf("%d: recalled %+v, author %+v\nwant %+v, %+v", seed, *got.observed, got.author, want, c.author)
		}
		if !got.observed.last.Equal(c.observed.last) {
			t.Fatalf("%d: last %v, want %v", seed, got.observed.last, c.observed.last)
		}
		if got.mustRead != c.mustRead || got.exclusive != c.exclusive || got.suffix != c.suffix || got.nonce != c.nonce {
			t.Fatalf("%d: recalled %+v, want %+v", seed, got, c)
		}
	}
}

// The author of an Event is not needed if it could change Events.
func TestStateHasTheAuthorOnlyIfItMayOnlyCreate(t *testing.T) {
	for _, createOnly := range []bool{false, true} {
		e := &Entry{user: "jane", createOnly: createOnly, Sequence: 7}
		answered, read := stateOf(sinktest.Event(false)), stateOf(sinktest.Event(false))
		answered.author.created(e)
		read.author.begin(e, 0) // and the answer is lost
		read.author.read(nil, read.observed, e.Sequence, e.Sequence)
		for name, c := range map[string]*Counter{"answered": answered, "read": read} {
			got := recalled(c, sinktest.Event(false)).author
			if got.known != createOnly || createOnly && got.user != hashOf("jane") {
				t.Errorf("%s, create-only %v: recalled %+v", name, createOnly, got)
			}
		}
	}
}

// Each client that counts by itself is counted once, though the counter is recalled in between.
func TestReplayOnARecalledStateIsRead(t *testing.T) {
	recalls := func(w *world) { w.ours.recalls() }
	check(t, scenario{
		name:  "a report that comes twice",
		steps: []step{reports("client-0", 2), sends, recalls, reports("client-0", 2), sends, settles},
		ends:  []string{"created", "replayed"}, counted: 2, events: 1,
	})
}
