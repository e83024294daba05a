package sink

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// What is said of a namespace through one API is no longer so when the other
// one writes there.
func TestNamespaceThatIsMadeHasItsRoomThroughEitherAPI(t *testing.T) {
	var mu sync.Mutex
	made, inFlight, most := false, 0, 0
	c := byNamespace{"new": func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if !made {
			return missing("new")
		}
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		time.Sleep(100 * time.Millisecond)
		mu.Lock()
		inFlight--
		return nil
	}}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("new"))
		synctest.Wait()
		b.recordLater(1, time.Hour, inNamespace("new")) // so that the namespace has something to do
		mu.Lock()
		made = true
		mu.Unlock()
		const series = 100
		for i := range series {
			b.record(i, inNamespace("new"), newStyle)
		}
		pass(time.Minute)
		if got := b.ledger.Totals().Written(); got != series || most == 1 {
			t.Errorf("%d are written, %d at once", got, most)
		}
	})
}

// slowly answers as a server of one namespace that is made at some time, and
// knows how many requests there are at once.
type slowly struct {
	mu             sync.Mutex
	server         *sinktest.Server
	made           bool
	inFlight, most int
}

func (c *slowly) do(request func() (*corev1.Event, error)) (*corev1.Event, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.made {
		return nil, missing("ns")
	}
	c.inFlight++
	c.most = max(c.most, c.inFlight)
	c.mu.Unlock()
	time.Sleep(100 * time.Millisecond)
	c.mu.Lock()
	c.inFlight--
	return request()
}

func (c *slowly) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.do(func() (*corev1.Event, error) { return c.server.Create(event.Name, event) })
}

func (c *slowly) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	return c.do(func() (*corev1.Event, error) { return c.server.Patch(name, patch) })
}

// Where another writer has created all Events already, the namespace is there too.
func TestNamespaceThatIsMadeHasItsRoomThoughAnotherCreatesThere(t *testing.T) {
	c := &slowly{server: sinktest.NewServer()}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		c.mu.Lock()
		c.made = true
		c.mu.Unlock()
		const series = 100
		o := unlimited()
		other := &bench{t: t, ledger: b.ledger, namespace: b.namespace}
		var err error
		if other.Sink, err = New(t.Context(), c, b.ledger, o); err != nil {
			t.Fatal(err)
		}
		for i := range series {
			other.record(i)
		}
		other.Close(t.Context())
		pass(time.Minute)
		c.mu.Lock()
		c.most = 0
		c.mu.Unlock()
		b.recordLater(series, time.Hour) // so that the namespace has something to do
		for i := range series {
			b.record(i)
		}
		pass(time.Minute)
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.most == 1 {
			t.Error("one request at a time is made in a namespace that is there")
		}
	})
}

// An answer that a namespace is missing says nothing of what happened while it
// was under way: the namespace may have been made before that.
func TestAnswerHoldsForWhatWasThereWhenItWasAskedFor(t *testing.T) {
	var made atomic.Bool
	var takes atomic.Int64
	c := byNamespace{"new": func(context.Context) error {
		was := made.Load()
		time.Sleep(time.Duration(takes.Load()))
		if was {
			return nil
		}
		return missing("new")
	}}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("new"))
		synctest.Wait()
		takes.Store(int64(200 * time.Millisecond))
		b.record(1, inNamespace("new")) // asks as soon as the answer to the first is old
		pass(DefaultOptions().NamespaceRefusedFor + 100*time.Millisecond)
		made.Store(true)
		b.record(2, inNamespace("new"))
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Written() != 1 {
			t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
		}
	})
}

// An answer that comes late says nothing any more if another one, to a question that
// was asked later, has come before it.
func TestAnswerThatIsOvertakenHoldsForItsOwnEventOnly(t *testing.T) {
	var made atomic.Bool
	c := byNamespace{"new": func(context.Context) error {
		if made.Load() {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
		return missing("new")
	}}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("new"))
		synctest.Wait() // it is asked
		made.Store(true)
		b.record(1, inNamespace("new"))
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		b.record(2, inNamespace("new"))
		synctest.Wait()
		if got := b.ledger.Totals(); got.Written() != 2 || got.Dropped[occurrence.NamespaceNotFound] != 1 {
			t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
		}
	})
}

// A client is told what is known of its namespace at once, also if its series
// already waits to be asked for.
func TestClientOfASeriesThatWaitsForItsNamespaceIsAnswered(t *testing.T) {
	bubble(t, scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) { return nil, missing("ns") }), nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait() // what is known from here on
		b.record(1)
		synctest.Wait() // waits until it is time to ask again
		answered := false
		b.record(1, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { answered = true } })
		synctest.Wait()
		if !answered {
			t.Error("it has to wait")
		}
		b.Flush(t.Context())
	})
}

func missing(namespace string) error {
	err := apierrors.NewNotFound(corev1.Resource("namespaces"), namespace)
	err.ErrStatus.Details.Kind = "namespaces"
	return err
}

// k/k#23644, k/k#38612: a namespace that is missing or being deleted is asked for
// now and then, not for each Event.
func TestNamespaceThatIsGoneIsLeftAlone(t *testing.T) {
	var mu sync.Mutex
	asked := 0
	c := byNamespace{"gone": func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		asked++
		return missing("gone")
	}}
	bubble(t, c, func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) {
		const series = 1000
		for i := range series {
			b.record(i, inNamespace("gone"))
		}
		b.record(0, inNamespace("other"))
		synctest.Wait()
		if got := b.ledger.Totals(); got.Written() != 1 {
			t.Errorf("another namespace waits: settled %v", got.Outcomes)
		}
		b.Flush(t.Context())
		if got := b.ledger.Totals().Dropped[occurrence.NamespaceNotFound]; got != series || asked > 4 {
			t.Errorf("%d requests, dropped %v", asked, got)
		}
		b.record(2, inNamespace("gone"))
		b.Flush(t.Context()) // what was asked last may have been asked a second ago
		before := asked
		b.record(0, inNamespace("gone"))
		synctest.Wait()
		if p := b.Pending(); p.Series != 1 || asked != before {
			t.Errorf("asked %d times at once", asked-before)
		}
		answered := false
		b.record(1, inNamespace("gone"), func(o *occurrence.Occurrence) {
			o.Settled = func(s occurrence.Settlement) { answered = s.Reason == occurrence.NamespaceNotFound && s.Err != nil }
		})
		synctest.Wait()
		if !answered || asked != before {
			t.Error("a client has to wait for what is known")
		}
		b.Flush(t.Context())
		if got := b.ledger.Totals().Dropped[occurrence.NamespaceNotFound]; got != series+3 || asked != before+1 {
			t.Errorf("asked %d times after a while, dropped %v", asked-before, got)
		}
	})
}

// What happens after a namespace was found missing may happen after it was made.
func TestNamespaceThatIsMadeLosesNothingFromThenOn(t *testing.T) {
	var mu sync.Mutex
	made := false
	c := byNamespace{"new": func(context.Context) error {
		mu.Lock()
		defer mu.Unlock()
		if made {
			return nil
		}
		return missing("new")
	}}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("new"))
		synctest.Wait()
		mu.Lock()
		made = true
		mu.Unlock()
		const series = 500
		for i := range series {
			b.record(i, inNamespace("new"))
		}
		if left := b.Flush(t.Context()); left.Series != 0 {
			t.Errorf("left %+v", left)
		}
		if got := b.ledger.Totals(); got.Written() != series || got.Dropped[occurrence.NamespaceNotFound] != 1 {
			t.Errorf("settled %v", got.Outcomes)
		}
	})
}

// slowAnswers is a client whose answers take a while in each namespace, and which
// counts them.
type slowAnswers struct {
	takes map[string]time.Duration

	mu             sync.Mutex
	asked          int // in the namespace that is gone
	inFlight, most int
}

func (c *slowAnswers) client() byNamespace {
	out := byNamespace{"gone": func(context.Context) error {
		c.begin(1)
		time.Sleep(c.takes["gone"])
		c.begin(-1)
		return missing("gone")
	}}
	for name, takes := range c.takes {
		if name != "gone" {
			out[name] = func(context.Context) error { time.Sleep(takes); return nil }
		}
	}
	return out
}

func (c *slowAnswers) begin(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.asked += max(0, n)
	c.inFlight += n
	c.most = max(c.most, c.inFlight)
}

// When it is time to ask again, one asks and the others wait for its answer.
func TestOneAsksForANamespaceThatIsGone(t *testing.T) {
	c := &slowAnswers{takes: map[string]time.Duration{"gone": 100 * time.Millisecond}}
	bubble(t, c.client(), nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("gone"))
		b.Flush(t.Context())
		for i := range 50 {
			b.record(1+i, inNamespace("gone"))
		}
		pass(b.options.NamespaceRefusedFor + time.Second)
		if got := b.ledger.Totals().Dropped[occurrence.NamespaceNotFound]; got != 51 || c.asked != 2 || c.most != 1 {
			t.Errorf("%d requests, %d at once, %d are dropped", c.asked, c.most, got)
		}
	})
}

// A series that waited for its namespace has the answer to another's question, also
// if it comes to its turn when that is old.
func TestAnswerHoldsForWhatWaitedForIt(t *testing.T) {
	c := &slowAnswers{takes: map[string]time.Duration{"gone": 0, "slow": 5 * time.Second}}
	bubble(t, c.client(), func(o *Options) { o.Concurrency = 1 }, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("gone"))
		synctest.Wait()
		const before = 50 * time.Millisecond // the others, since there is one worker
		for i := range 3 {
			b.recordLater(i, b.options.NamespaceRefusedFor-before, inNamespace("slow"))
		}
		b.record(1, inNamespace("gone"))
		b.record(2, inNamespace("gone")) // the last that there is when the first of them asks
		pass(time.Minute)
		if got := b.ledger.Totals(); got.Dropped[occurrence.NamespaceNotFound] != 3 || got.Written() != 3 || c.asked != 2 {
			t.Errorf("%d requests, settled %v", c.asked, got)
		}
	})
}

// What exists in a namespace that is being deleted is changed as before, and that puts
// off no question whether one may create again.
func TestEventsOfATerminatingNamespaceAreCountedOn(t *testing.T) {
	var terminating atomic.Bool
	c := scripted(func(_ context.Context, v apiclient.Verb) (*corev1.Event, error) {
		switch {
		case v != apiclient.VerbCreate:
			return answeredWith(sinktest.Event(false)), nil
		case terminating.Load():
			return nil, missing("ns")
		default:
			return nil, nil
		}
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		terminating.Store(true)
		b.record(1)
		synctest.Wait() // it is known
		const patches = 20
		for range patches {
			b.record(0)
			synctest.Wait()
			if p := b.Pending(); p.Series != 0 {
				t.Fatalf("%+v waits", p)
			}
		}
		terminating.Store(false)
		b.record(2)
		for range patches {
			b.record(0)
			pass(b.options.NamespaceRefusedFor / 10)
		}
		if got := b.ledger.Totals(); got.Written() != 2+2*patches || b.Pending().Series != 0 {
			t.Errorf("%+v is pending, settled %v", b.Pending(), got)
		}
	})
}

// answeredWith is an Event as the apiserver answers it.
func answeredWith(event *corev1.Event) *corev1.Event {
	event.UID, event.ResourceVersion = "uid", "1"
	return event
}
