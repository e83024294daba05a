package sink

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// namespace is the one of the bench, which exists or not: creates are refused if it did
// not exist when they were sent.
type namespace struct {
	exists atomic.Bool
	// refusalTakes is how long a refusal takes.
	refusalTakes atomic.Int64
}

func (n *namespace) answer(_ context.Context, c *call) error {
	if c.verb != apiclient.VerbCreate || n.exists.Load() {
		return nil
	}
	time.Sleep(time.Duration(n.refusalTakes.Load()))
	return missing(c.namespace)
}

const notFound = occurrence.NamespaceNotFound

// An occurrence after a refusal may be one after the creation of the namespace. The refusal
// ends with the first Event, through either API and by any writer: then the namespace has
// more than one slot.
func TestNamespaceThatIsMadeLosesNothingFromThenOn(t *testing.T) {
	const series = 100
	for name, test := range map[string]struct{ otherAPI, otherWriter bool }{
		"created by the sink":           {false, false},
		"created through the other API": {true, false},
		"created by another writer":     {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			var ns namespace
			f := &fake{answer: ns.answer, takes: 100 * time.Millisecond}
			bubble(t, f, nil, func(t *testing.T, b *bench) {
				b.record(0)
				pass(f.takes)
				ns.exists.Store(true)
				if test.otherWriter {
					other := start(t.Context(), t, f, unlimited())
					other.recordEach(series)
					other.closeWithin(time.Minute)
					pass(time.Minute)
					f.loads[""].most = 0
				}
				b.recordLater(series, time.Hour) // so that the namespace has something to do
				b.recordEach(series, func(o *occurrence.Occurrence) {
					if test.otherAPI {
						newStyle(o)
					}
				})
				pass(time.Minute)
				b.wantEnds(ends{notFound: 1, written: series})
				if f.load("").most == 1 {
					t.Error("one request at a time is sent to a namespace that exists")
				}
			})
		})
	}
}

// A refusal does not apply to what was recorded while its request was in flight: the
// namespace may have been created before that.
func TestRefusalAppliesToWhatWasPendingWhenItsRequestWasSent(t *testing.T) {
	var ns namespace
	bubble(t, &fake{answer: ns.answer}, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		ns.refusalTakes.Store(int64(200 * time.Millisecond))
		b.record(1) // is sent as soon as the first refusal has ended
		pass(b.options.NamespaceRefusedFor + 100*time.Millisecond)
		ns.exists.Store(true)
		b.record(2)
		b.flush()
		b.wantEnds(ends{notFound: 2, written: 1})
	})
}

// A refusal is ignored if the answer to a later request has come before it.
func TestRefusalThatIsOvertakenAppliesToItsOwnEventOnly(t *testing.T) {
	var ns namespace
	ns.refusalTakes.Store(int64(100 * time.Millisecond))
	bubble(t, &fake{answer: ns.answer}, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait() // it is in flight
		ns.exists.Store(true)
		b.record(1)
		pass(100 * time.Millisecond)
		b.record(2)
		synctest.Wait()
		b.wantEnds(ends{notFound: 1, written: 2})
	})
}

// k/k#23644, k/k#38612: a namespace that is missing or being deleted gets a request now and
// then, not one for each Event. A caller that waits gets the cached refusal at once.
func TestNamespaceThatIsGoneIsLeftAlone(t *testing.T) {
	const series = 1000
	f := &fake{answer: in("gone", fail(missing("gone")))}
	gone := inNamespace("gone")
	bubble(t, f, func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) {
		b.recordEach(series, gone)
		b.record(0)
		synctest.Wait()
		if n := b.ledger.Totals().Written(); n != 1 {
			t.Error("another namespace waits")
		}
		b.flush()
		if n := f.load("gone").sent; n > 4 {
			t.Errorf("%d requests", n)
		}
		b.record(2, gone)
		b.flush() // the last request may have been sent a second ago
		before := f.load("gone").sent
		b.record(0, gone)
		synctest.Wait()
		if p := b.Pending(); p.Series != 1 || f.load("gone").sent != before {
			t.Errorf("%+v is pending after %d requests", p, f.load("gone").sent-before)
		}
		for _, i := range []int{0, 1} { // of a series that waits already, and of another one
			var end occurrence.Settlement
			b.record(i, gone, onSettled(func(s occurrence.Settlement) { end = s }))
			synctest.Wait()
			if end.Reason != notFound || end.Err == nil || f.load("gone").sent != before {
				t.Errorf("a caller that waits gets %+v after %d requests", end, f.load("gone").sent-before)
			}
		}
		b.record(0, gone)
		b.flush()
		b.wantEnds(ends{written: 1, notFound: series + 5})
		if n := f.load("gone").sent - before; n != 1 {
			t.Errorf("%d requests after a while", n)
		}
	})
}

// When a refusal has ended, one request is sent and the other series wait for its answer.
func TestOneRequestIsSentWhenARefusalHasEnded(t *testing.T) {
	f := &fake{takes: 100 * time.Millisecond, answer: fail(missing("ns"))}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.record(0)
		b.flush()
		for i := range 50 {
			b.record(1 + i)
		}
		pass(b.options.NamespaceRefusedFor + time.Second)
		b.wantEnds(ends{notFound: 51})
		if l := f.load(""); l.sent != 2 || l.most != 1 {
			t.Errorf("%d requests, %d at once", l.sent, l.most)
		}
	})
}

// A refusal applies to a series that waited for it, also if it has ended when the series is
// dequeued.
func TestRefusalAppliesToWhatWaitedForIt(t *testing.T) {
	f := &fake{answer: func(_ context.Context, c *call) error {
		if c.namespace == "slow" {
			time.Sleep(5 * time.Second)
			return nil
		}
		return missing(c.namespace)
	}}
	bubble(t, f, func(o *Options) { o.Concurrency = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		const before = 50 * time.Millisecond // the others, since there is one worker
		for i := range 3 {
			b.recordLater(i, b.options.NamespaceRefusedFor-before, inNamespace("slow"))
		}
		b.record(1)
		b.record(2) // the last one that is pending when the first of them is sent
		pass(time.Minute)
		b.wantEnds(ends{notFound: 3, written: 3})
		if n := f.load("ns").sent; n != 2 {
			t.Errorf("%d requests", n)
		}
	})
}

// The Events of a namespace that is being deleted can be changed. That does not postpone
// the next create.
func TestEventsOfATerminatingNamespaceAreCountedOn(t *testing.T) {
	const patches = 20
	var ns namespace
	ns.exists.Store(true)
	bubble(t, &fake{answer: ns.answer}, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		ns.exists.Store(false)
		b.record(1)
		synctest.Wait()
		for range patches {
			b.record(0)
			synctest.Wait()
			if p := b.Pending(); p.Series != 0 {
				t.Fatalf("%+v waits", p)
			}
		}
		ns.exists.Store(true)
		b.record(2)
		for range patches {
			b.record(0)
			pass(b.options.NamespaceRefusedFor / 10)
		}
		b.wantEnds(ends{notFound: 1, written: 2 + 2*patches})
	})
}
