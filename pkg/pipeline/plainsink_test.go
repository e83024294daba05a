package pipeline

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

var errLost = errors.New("the call or its answer is lost")

// passing is a custom sink that forwards to a memoryServer, without the context of a call.
type passing struct{ server *memoryServer }

func (p *passing) Create(event *corev1.Event) (*corev1.Event, error) {
	return p.call(func(ctx context.Context) (*corev1.Event, error) {
		return p.server.Create(ctx, occurrence.CoreV1, event)
	})
}
func (p *passing) Update(*corev1.Event) (*corev1.Event, error) { return nil, errLost }
func (p *passing) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	return p.call(func(ctx context.Context) (*corev1.Event, error) {
		return p.server.Patch(ctx, occurrence.CoreV1, event.Namespace, event.Name, patch)
	})
}

// call takes longer than the sink's request timeout if the server does not answer.
func (p *passing) call(do func(context.Context) (*corev1.Event, error)) (*corev1.Event, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	return do(ctx)
}

func (p *passing) stored() []corev1.Event { return p.server.all() }

// thirds returns a function that fails at every third call.
func thirds() func() error {
	var calls atomic.Int64
	return func() error {
		if calls.Add(1)%3 == 0 {
			return errLost
		}
		return nil
	}
}

// What the ledger counts as written is stored, whatever the store does, also after
// evictions and restarts of the sink.
func TestCustomSinkHasWhatTheLedgerSays(t *testing.T) {
	losesCalls := func(m *memorySink) *memorySink {
		fail := thirds()
		m.before = func(*corev1.Event) error { return fail() }
		return m
	}
	type storing interface {
		record.EventSink
		stored() []corev1.Event
	}
	for name, s := range map[string]func() storing{
		"replaces, no answer":            func() storing { return &memorySink{silent: true} },
		"replaces, echoes":               func() storing { return &memorySink{} },
		"refuses what exists, no answer": func() storing { return &memorySink{refuses: true, silent: true} },
		"refuses what exists, echoes":    func() storing { return &memorySink{refuses: true} },
		"replaces, loses answers":        func() storing { return &memorySink{silent: true, after: thirds()} },
		"replaces, loses calls":          func() storing { return losesCalls(&memorySink{silent: true}) },
		"refuses, loses answers":         func() storing { return &memorySink{silent: true, refuses: true, after: thirds()} },
		"refuses, loses calls":           func() storing { return losesCalls(&memorySink{silent: true, refuses: true}) },
		"forwards to an apiserver":       func() storing { return &passing{newMemoryServer(1, faults{})} },
		"forwards, loses answers":        func() storing { return &passing{newMemoryServer(1, faults{lost: 0.1})} },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := s()
				b := NewRecordBroadcaster(with(func(o *Options) { o.Sink.MaxIdleSeries = 4 }))
				r := b.NewRecorder(scheme.Scheme, source)
				all := make(map[*ledger.Ledger]bool)
				for restart := range 3 {
					w := b.StartRecordingToSink(s)
					for round := range 4 {
						recordPods(r, 20)
						if round != 1 {
							time.Sleep(time.Hour)
						}
					}
					for w := range b.stages.writers {
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
				if sum := sumOf(s.stored()); sum < written || sum > written+uncertain {
					t.Errorf("%d are stored, %d written, %d uncertain", sum, written, uncertain)
				}
			})
		})
	}
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
				var answers atomic.Int64
				m := &memorySink{silent: true, refuses: true, after: func() error {
					switch answers.Add(1) {
					case 1:
						time.Sleep(time.Second)
					case 2:
						return errLost
					}
					return nil
				}}
				b, r := recordTo(m, with(func(o *Options) { o.Sink.RetryBaseDelay = retryAfter }))
				for i := range 3 {
					r.Event(podIn("ns", fmt.Sprint("web-", i)), "Normal", "Tested", "")
					synctest.Wait()
				}
				time.Sleep(time.Minute)
				r.Event(podIn("ns", "web-1"), "Normal", "Tested", "")
				totals := drain(t, b)
				written, uncertain := totals.Written(), totals.Outcomes[occurrence.Uncertain]
				if sum := sumOf(m.stored()); uncertain != 1 || sum != written+uncertain {
					t.Errorf("%d are stored, ledger %+v", sum, totals)
				}
			})
		})
	}
}

// An Event cannot be evicted between the start of its patch and the call. Otherwise, if the
// answer was lost, the next write would count the same in another Event.
func TestEventIsNotEvictedDuringItsPatch(t *testing.T) {
	o := sink.DefaultOptions()
	o.MaxIdleSeries = 1
	m := &memorySink{silent: true}
	s, err := newCustomSink(recordCalls{m}, &traits{}, o)
	if err != nil {
		t.Fatal(err)
	}
	create := func(name string) {
		event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Count: 1}
		if _, err := s.Create(t.Context(), occurrence.CoreV1, event); err != nil {
			t.Error(err)
		}
	}
	patch := func() error {
		_, err := s.Patch(t.Context(), occurrence.CoreV1, "ns", "web-0", []byte(`{"count":2}`))
		return err
	}
	create("web-0")
	s.beginPatch(types.NamespacedName{Namespace: "ns", Name: "web-0"})
	create("web-1") // by another worker
	if err := patch(); err != nil {
		t.Errorf("the repeated patch: %v", err)
	}
	m.want(t, 2, 3)
	create("web-2")
	if err := patch(); !apierrors.IsNotFound(err) {
		t.Errorf("a patch of an evicted Event: %v", err)
	}
}

// If several attempts to create an Event have no response, and different counts, it is unknown
// which of them is stored. An attempt that is refused since the Event exists is none of them.
func TestCreatesThatAreLostWithDifferentCountsAreUncertain(t *testing.T) {
	for name, test := range map[string]struct {
		losesFirst bool // without effect
		uncertain  int64
	}{
		"the first is stored":  {false, 0},
		"the second is stored": {true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var answers atomic.Int64
				m := &memorySink{silent: true, refuses: true}
				m.before = func(e *corev1.Event) error {
					if test.losesFirst && e.InvolvedObject.Name == "web-1" && e.Count == 1 && answers.Load() == 1 {
						return errLost
					}
					return nil
				}
				m.after = func() error {
					if answers.Add(1) == 2 {
						return errLost
					}
					return nil
				}
				b, r := recordTo(m, with(func(o *Options) { o.Sink.MaxIdleSeries = 1 }))
				for _, name := range []string{"web-0", "web-1", "web-1"} {
					r.Event(podIn("ns", name), "Normal", "Tested", "")
					synctest.Wait()
				}
				time.Sleep(500 * time.Millisecond) // the last attempt is refused: the Event exists
				r.Event(podIn("ns", "web-2"), "Normal", "Tested", "")
				time.Sleep(time.Minute)
				totals := drain(t, b)
				written, uncertain := totals.Written(), totals.Outcomes[occurrence.Uncertain]
				if sum := sumOf(m.stored()); uncertain != test.uncertain || sum != written+uncertain {
					t.Errorf("%d are stored, ledger %+v", sum, totals)
				}
			})
		})
	}
}
