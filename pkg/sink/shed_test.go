package sink

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/occurrence"
)

func warning(o *occurrence.Occurrence) { o.Event.Type = corev1.EventTypeWarning }

// What is full gives up the counts of Normal Events that are stored already, and
// nothing else.
func TestNormalRepeatsMakeRoom(t *testing.T) {
	for name, limit := range map[string]func(*Options){
		"series": func(o *Options) { o.MaxPendingSeries = 4 },
		"bytes":  func(o *Options) { o.MaxPendingBytes = 4500 }, // each takes about 1.3 KiB
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, byNamespace{}, limit, func(t *testing.T, b *bench) {
				for i := range 2 {
					b.record(i)
				}
				b.record(2, warning)
				synctest.Wait()
				for i := range 2 {
					b.recordLater(i, time.Hour)
				}
				b.recordLater(2, time.Hour, warning)
				b.recordLater(3, time.Hour)
				wantDropped := func(n int64) {
					t.Helper()
					if got := b.ledger.Totals().Dropped[occurrence.PendingFull]; got != n {
						t.Errorf("%d dropped, want %d", got, n)
					}
				}
				wantDropped(0)
				b.recordLater(4, time.Hour) // takes the place of 1
				wantDropped(1)
				b.recordLater(1, time.Hour) // a repeat, for which nothing makes room
				wantDropped(2)
				b.recordLater(5, time.Hour, warning) // takes the place of 0
				wantDropped(3)
				b.recordLater(6, time.Hour, warning) // nothing is left that makes room
				wantDropped(4)
				if p := b.Pending(); p.Series != 4 || p.Occurrences != 4 {
					t.Errorf("pending %+v", p)
				}
			})
		})
	}
}

func TestWhatIsInWorkMakesNoRoom(t *testing.T) {
	bubble(t, byNamespace{}, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		b.mu.Lock()
		a, _ := b.idle.Peek(b.idle.Keys()[0])
		b.mu.Unlock()
		b.recordLater(0, time.Hour)
		b.mu.Lock()
		b.pending[a.key].job.state = jobRuns // as if a worker had it
		b.mu.Unlock()
		b.record(1)
		if got := b.ledger.Totals().Dropped[occurrence.PendingFull]; got != 1 {
			t.Errorf("%d dropped", got)
		}
		b.mu.Lock()
		b.pending[a.key].job.state = jobWaits
		b.mu.Unlock()
	})
}

// A series becomes a repeat when its Event is stored, also if it owes more by then.
func TestNormalRepeatThatWasAddedMeanwhileMakesRoom(t *testing.T) {
	c := scripted(func(_ context.Context, v verb) (*corev1.Event, error) {
		time.Sleep(time.Second)
		if v == verbPatch {
			return nil, apierrors.NewTooManyRequests("later", 60)
		}
		return nil, nil
	})
	bubble(t, c, func(o *Options) { o.MaxPendingSeries = 1 }, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Second / 2)
		b.record(0)
		pass(2 * time.Second) // it is created, and the patch waits
		b.record(1, warning)
		b.Flush(t.Context())
		if got := b.ledger.Totals(); got.Outcomes[occurrence.Created] != 2 {
			t.Errorf("the Warning is dropped: settled %v", got.Outcomes)
		}
	})
}
