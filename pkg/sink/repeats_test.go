package sink

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/internal/occurrence"
)

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
