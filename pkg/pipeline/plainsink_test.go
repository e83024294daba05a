package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// store is a custom sink that keeps whole Events by name.
type store struct {
	refuses bool // to create what exists
	echoes  bool // returns the Event; otherwise nil
	// fails returns whether the n-th call returns an error, and whether it takes
	// effect.
	fails func(n int) (fails, takesEffect bool)

	mu     sync.Mutex
	calls  int
	events map[string]*corev1.Event
}

var errStore = errors.New("the store failed")

func (s *store) Create(event *corev1.Event) (*corev1.Event, error) { return s.keep(event, true) }
func (s *store) Update(event *corev1.Event) (*corev1.Event, error) { return s.keep(event, false) }
func (s *store) Patch(event *corev1.Event, _ []byte) (*corev1.Event, error) {
	return s.keep(event, false)
}

func (s *store) keep(event *corev1.Event, isNew bool) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.events == nil {
		s.events = make(map[string]*corev1.Event)
	}
	s.calls++
	fails, takesEffect := false, true
	if s.fails != nil {
		fails, takesEffect = s.fails(s.calls)
	}
	if s.refuses && isNew && s.events[event.Name] != nil {
		return nil, apierrors.NewAlreadyExists(eventsResource, event.Name)
	}
	if takesEffect {
		s.events[event.Name] = event.DeepCopy()
	}
	switch {
	case fails:
		return nil, errStore
	case s.echoes:
		return event, nil
	default:
		return nil, nil
	}
}

func (s *store) count() (sum int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		sum += countOf(e)
	}
	return sum
}

// expiring is a custom sink whose Events expire.
type expiring struct{ store }

func (e *expiring) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	e.mu.Lock()
	gone := e.events[event.Name] == nil
	e.mu.Unlock()
	if gone {
		return nil, apierrors.NewNotFound(eventsResource, event.Name)
	}
	return e.store.Patch(event, patch)
}

func TestEventThatExpiredInACustomSinkIsCreatedAgain(t *testing.T) {
	for _, echoes := range []bool{false, true} {
		t.Run(fmt.Sprintf("answers with the Event %v", echoes), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &expiring{store{echoes: echoes}}
				b, r := recordTo(s)
				r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
				synctest.Wait()
				s.mu.Lock()
				clear(s.events)
				s.mu.Unlock()
				r.Event(podIn("ns", "web-0"), "Normal", "Tested", "")
				drain(t, b)
				if totals := ledgers(b.stations)[0]; s.count() != 1 || totals.Written() != 2 {
					t.Errorf("%d are stored, ledger %+v", s.count(), totals)
				}
			})
		})
	}
}

// passing forwards to a memoryServer.
type passing struct{ server *memoryServer }

// withinTime returns a context for a record.EventSink, whose methods have none. It is longer
// than the sink's request timeout.
func withinTime() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 20*time.Second)
}

func (p *passing) Create(event *corev1.Event) (*corev1.Event, error) {
	ctx, cancel := withinTime()
	defer cancel()
	return p.server.Create(ctx, occurrence.CoreV1, event)
}
func (p *passing) Update(*corev1.Event) (*corev1.Event, error) { return nil, errStore }
func (p *passing) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	ctx, cancel := withinTime()
	defer cancel()
	return p.server.Patch(ctx, occurrence.CoreV1, event.Namespace, event.Name, patch)
}

func (p *passing) count() (sum int64) {
	counts, _ := p.server.counted()
	for _, n := range counts {
		sum += n
	}
	return sum
}

// What the ledger counts as written is stored, whatever the store does, also after
// evictions and restarts of the sink.
func TestCustomSinkHasWhatTheLedgerSays(t *testing.T) {
	every := func(period int, takesEffect bool) func(int) (bool, bool) {
		return func(n int) (bool, bool) { return n > 1 && n%period == 0, n == 1 || n%period != 0 || takesEffect }
	}
	type counting interface {
		record.EventSink
		count() int64
	}
	for name, s := range map[string]func() counting{
		"replaces, no answer":            func() counting { return &store{} },
		"replaces, echoes":               func() counting { return &store{echoes: true} },
		"refuses what exists, no answer": func() counting { return &store{refuses: true} },
		"refuses what exists, echoes":    func() counting { return &store{refuses: true, echoes: true} },
		"replaces, loses answers":        func() counting { return &store{fails: every(3, true)} },
		"replaces, loses calls":          func() counting { return &store{fails: every(3, false)} },
		"refuses, loses answers":         func() counting { return &store{refuses: true, fails: every(3, true)} },
		"refuses, loses calls":           func() counting { return &store{refuses: true, fails: every(3, false)} },
		"forwards to an apiserver":       func() counting { return &passing{newMemoryServer(1, faults{})} },
		"forwards, loses answers":        func() counting { return &passing{newMemoryServer(1, faults{lost: 0.1})} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := s()
				o := DefaultOptions()
				o.Sink.MaxIdleSeries = 4
				b := NewRecordBroadcaster(WithOptions(o))
				r := b.NewRecorder(scheme.Scheme, source)
				all := make(map[*ledger.Ledger]bool)
				for restart := range 3 {
					w := b.StartRecordingToSink(s)
					for round := range 4 {
						for i := range 20 {
							r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", "Tested", "")
						}
						if round != 1 {
							time.Sleep(time.Hour)
						}
					}
					for w := range b.stations.writers {
						all[w.ledger] = true
					}
					if w.Stop(); restart != 1 { // or the next one starts while it drains
						<-w.ResultChan()
					}
				}
				drain(t, b)
				time.Sleep(time.Minute) // for abandoned calls
				if p, ok := s.(*passing); ok {
					p.server.late.Wait()
				}
				var written, uncertain int64
				for l := range all {
					totals := l.Totals()
					written += totals.Written()
					uncertain += totals.Outcomes[occurrence.Uncertain]
					if totals.Pending() != 0 || totals.Written() == 0 {
						t.Errorf("ledger %+v", totals)
					}
				}
				if sum := s.count(); sum < written || sum > written+uncertain {
					t.Errorf("%d are stored, %d written, %d uncertain", sum, written, uncertain)
				}
			})
		})
	}
}

// slowFirst returns from its first call after a second. The second call takes effect, and
// returns an error.
type slowFirst struct {
	store
	begun atomic.Int32
}

func (s *slowFirst) Create(event *corev1.Event) (*corev1.Event, error) {
	n := s.begun.Add(1)
	answer, err := s.store.Create(event)
	switch n {
	case 1:
		time.Sleep(time.Second)
	case 2:
		return nil, errStore
	}
	return answer, err
}

// Until the first response of a sink, Events have the names of their series. One that was
// created so, and whose response was lost, may be that of another writer.
func TestCreateThatIsLostBeforeTheFirstAnswerIsUncertain(t *testing.T) {
	for name, retryAfter := range map[string]time.Duration{
		"repeated before the first answer": time.Millisecond,
		"repeated after the first answer":  2 * time.Second,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &slowFirst{store: store{refuses: true}}
				o := DefaultOptions()
				o.Sink.RetryBaseDelay = retryAfter
				b, r := recordTo(s, WithOptions(o))
				for i := range 3 {
					r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", "Tested", "")
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				r.Event(podIn("ns", "web-1"), "Normal", "Tested", "")
				drain(t, b)
				totals := ledgers(b.stations)[0]
				written, uncertain := totals.Written(), totals.Outcomes[occurrence.Uncertain]
				if sum := s.count(); uncertain != 1 || sum != written+uncertain || totals.Pending() != 0 {
					t.Errorf("%d are stored, ledger %+v", sum, totals)
				}
			})
		})
	}
}
