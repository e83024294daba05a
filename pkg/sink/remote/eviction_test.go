package remote

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// forming are the objects of the Events of a namespace that have not been sent, in order.
func (s *subject) forming(namespace string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	q := s.queues[target{occurrence.CoreV1, namespace}]
	if q == nil {
		return ""
	}
	var objects []string
	for _, i := range q.forming {
		objects = append(objects, i.latest.Event.InvolvedObject.Name)
	}
	return strings.Join(objects, " ")
}

// At the limit, the namespace that has the most loses its newest Normal, or else its newest Warning, to one that has
// less. Otherwise a Warning evicts a Normal of its own namespace, and a Normal is dropped.
func TestWhatIsEvicted(t *testing.T) {
	type record struct {
		namespace, object string
		change            func(*occurrence.Occurrence)
	}
	normal := func(o *occurrence.Occurrence) { o.Event.Type = corev1.EventTypeNormal + " " } // as long as Warning
	n := func(namespace, object string) record { return record{namespace, object, normal} }
	w := func(namespace, object string) record { return record{namespace, object, warning} }
	for name, test := range map[string]struct {
		records      []record
		large, small string // what is left
		dropped      int64
	}{
		"the newest Normal of the largest": {
			records: []record{n("large", "1"), n("large", "2"), w("large", "3"), n("large", "4"), w("large", "5"), n("small", "1")},
			large:   "1 2 3 5", small: "1", dropped: 1,
		},
		"the newest Warning if there is no Normal": {
			records: []record{w("large", "1"), w("large", "2"), w("large", "3"), w("large", "4"), w("large", "5"), n("small", "1")},
			large:   "1 2 3 4", small: "1", dropped: 1,
		},
		"no more than both have": {
			records: []record{n("large", "1"), n("large", "2"), n("large", "3"), n("small", "1"), n("small", "2"), n("small", "3"), w("small", "4")},
			large:   "1 2 3", small: "1 4", dropped: 2,
		},
		"a Normal evicts no own one": {
			records: []record{n("large", "1"), n("large", "2"), n("large", "3"), n("large", "4"), n("large", "5"), n("large", "6")},
			large:   "1 2 3 4 5", dropped: 1,
		},
		"a Warning evicts the newest own Normal": {
			records: []record{n("large", "1"), n("large", "2"), w("large", "3"), n("large", "4"), w("large", "5"), w("large", "6"), w("large", "7"), w("large", "8"), w("large", "9")},
			large:   "3 5 6 7 8", dropped: 4,
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeEventd()
				s := newSubject(t, f, func(o *Options) { o.Delay, o.MaxPendingItems = time.Hour, 5 })
				for _, r := range test.records {
					s.record(r.namespace, r.object, r.change)
				}
				if large, small := s.forming("large"), s.forming("small"); large != test.large || small != test.small {
					t.Errorf("%q and %q are left, want %q and %q", large, small, test.large, test.small)
				}
				if n := s.balanced(t).Dropped[occurrence.PendingFull]; n != test.dropped {
					t.Errorf("%d are dropped, want %d", n, test.dropped)
				}
				s.close(t, t.Context())
				if totals := s.balanced(t); f.counted() != totals.Outcomes[occurrence.Acknowledged] || f.counted() != int64(len(test.records))-test.dropped {
					t.Errorf("%d are counted, %v", f.counted(), totals.Outcomes)
				}
			})
		})
	}
}

// What was sent may be counted: it is not evicted, and the largest queue of the others is.
func TestWhatWasSentIsNotEvicted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		f.before = func(ctx context.Context, _ int, events []corev1.Event) error {
			if events[0].Namespace == "sent" {
				<-ctx.Done()
				return ctx.Err()
			}
			return nil
		}
		s := newSubject(t, f, func(o *Options) { o.Delay, o.MaxItems, o.MaxPendingItems = time.Hour, 5, 9 })
		for i := range 6 {
			s.record("sent", fmt.Sprint(i)) // the first five are a full batch: sent at once
		}
		for i, want := range []string{"5, 0", "5, 0 1", ", 0 1 2", ", 0 1"} {
			namespace, object := "large", fmt.Sprint(i)
			if i == 3 {
				namespace, object = "small", "0"
			} else if i == 0 {
				s.record("small", "first")
			}
			s.record(namespace, object)
			s.balanced(t)
			if got := s.forming("sent") + ", " + s.forming("large"); got != want {
				t.Errorf("%d: %q are left, want %q", i, got, want)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		s.close(t, ctx)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Uncertain: 5, occurrence.Acknowledged: 4, occurrence.Dropped: 2})
	})
}

// The memory of what is pending is bounded, whatever grows: new Events, and repeats with more contents or callbacks.
func TestMemoryOfWhatIsPendingIsBounded(t *testing.T) {
	for name, change := range map[string]func(i int, o *occurrence.Occurrence){
		"new Events":    func(i int, o *occurrence.Occurrence) { o.Event.InvolvedObject.Name = fmt.Sprint(i) },
		"long messages": func(i int, o *occurrence.Occurrence) { o.Event.Message = fmt.Sprint(i, strings.Repeat("x", 10_000)) },
		"callbacks":     func(_ int, o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) {} },
		"a long one for several of another namespace": func(i int, o *occurrence.Occurrence) {
			if o.Event.Message = fmt.Sprint(i); i == 250 {
				o.Event.Namespace, o.Event.Message = "other", strings.Repeat("x", 10_000)
			}
		},
		"growing repeats": func(i int, o *occurrence.Occurrence) {
			o.Event.Annotations = map[string]string{"x": strings.Repeat("x", 600*i)}
		},
		"shrinking repeats": func(i int, o *occurrence.Occurrence) {
			o.Event.Annotations = map[string]string{"x": strings.Repeat("x", 10_000-10*i)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const limit = 100 << 10
				f := newFakeEventd()
				s := newSubject(t, f, func(o *Options) { o.Delay, o.MaxPendingBytes = time.Hour, limit })
				most := int64(0)
				for i := range 300 {
					s.record("ns", "web", func(o *occurrence.Occurrence) { change(i, o) })
					most = max(most, s.pendingBytes())
				}
				totals := s.balanced(t)
				if full := totals.Dropped[occurrence.PendingFull] > 0; most > limit || full == (name == "shrinking repeats") {
					t.Errorf("%d bytes were pending, want at most %d; dropped %v", most, limit, totals.Dropped)
				}
				s.close(t, t.Context())
				if totals := s.balanced(t); f.counted() != totals.Outcomes[occurrence.Acknowledged] || totals.Pending() != 0 {
					t.Errorf("%d are counted, %v", f.counted(), totals.Outcomes)
				}
			})
		})
	}
}

// A namespace whose Events are all evicted while it waits for a request is sent nothing. One that comes back has its own
// batch.
func TestNamespaceThatHasLostAllIsSentNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := newFakeEventd()
		f.before = func(_ context.Context, n int, _ []corev1.Event) error {
			if n == 1 {
				<-release
			} else {
				time.Sleep(time.Second)
			}
			return nil
		}
		s := newSubject(t, f, func(o *Options) { o.Delay, o.Concurrency, o.MaxPendingBytes = 0, 1, 16<<10 })
		message := func(length int) func(*occurrence.Occurrence) {
			return func(o *occurrence.Occurrence) { o.Event.Message = strings.Repeat("x", length) }
		}
		s.record("hanging", "web")
		s.record("large", "evicted", message(10<<10))
		s.record("small", "web", message(5<<10)) // evicts it
		s.balanced(t)
		s.record("large", "again") // behind the empty queue
		if s.balanced(t); s.forming("large") != "again" || s.forming("small") != "web" {
			t.Errorf("%q and %q are left", s.forming("large"), s.forming("small"))
		}
		close(release)
		for range 4 {
			s.balanced(t)
			time.Sleep(time.Second / 2)
		}
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 3, occurrence.Dropped: 1})
		if got := fmt.Sprint(f.sizes); got != "[1 1 1]" {
			t.Errorf("batches of %s", got)
		}
		s.close(t, t.Context())
	})
}
