package counters

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/pkg/receiver"
)

const (
	// MaxKnown is the number of Events whose counts are remembered: 12 MiB. An Event that is forgotten
	// counts 1 for its next version.
	MaxKnown = 65_536
	// maxForgotten bounds the namespaces of which it is known since when nothing was forgotten.
	maxForgotten = 1024
)

// Receiver counts what it is sent. It knows the counts of Events, from its beginning on: a new term
// needs a new one, since other leaders have counted meanwhile.
type Receiver struct {
	counters *Counters
	began    time.Time
	known    *fairlru.Cache[types.UID, string, known]
	// forgotten has the latest creation of an Event that was forgotten, by namespace, and
	// forgottenElsewhere that of all other namespaces.
	forgotten          map[string]time.Time
	forgottenElsewhere time.Time
}

type known struct {
	count     int64
	namespace string
	created   time.Time
}

var _ receiver.Receiver = (*Receiver)(nil)

// Receiver returns a receiver that knows no Event.
func (c *Counters) Receiver() *Receiver { return c.newReceiver(MaxKnown) }

func (c *Counters) newReceiver(most int64) *Receiver {
	r := &Receiver{counters: c, began: time.Now(), forgotten: make(map[string]time.Time)}
	r.known = fairlru.New[types.UID, string](most, r.forget)
	return r
}

// Send counts a batch. It has no error.
func (r *Receiver) Send(_ context.Context, batch []receiver.Record) (rejected int, err error) {
	for i := range batch {
		if n := r.increase(batch[i].Event); n > 0 {
			r.counters.count(batch[i].Event, n)
		}
	}
	return 0, nil
}

// Close does nothing.
func (r *Receiver) Close() error { return nil }

// increase returns the occurrences that a version adds to what was counted of its Event. A count that
// has become lower, by who may write it or a restored backup, adds nothing.
func (r *Receiver) increase(e *corev1.Event) int64 {
	count := int64(max(eventfields.Count(e), 1))
	former, ok := r.known.Get(e.UID)
	if !ok || former.count != count {
		r.known.Add(e.UID, e.Namespace, known{count, e.Namespace, e.CreationTimestamp.Time}, 1)
	}
	switch {
	case ok:
		return count - former.count
	case r.isNew(e):
		return count
	default:
		return 1
	}
}

// isNew reports whether an Event that is not known was created after this receiver began, and after
// all that were forgotten. A creation has no fraction of a second, so one of the same second is not.
func (r *Receiver) isNew(e *corev1.Event) bool {
	forgotten, ok := r.forgotten[e.Namespace]
	if !ok {
		forgotten = r.forgottenElsewhere
	}
	return e.CreationTimestamp.After(r.began) && e.CreationTimestamp.After(forgotten)
}

// forget is called for each Event that is no longer known.
func (r *Receiver) forget(_ types.UID, k known) {
	former, ok := r.forgotten[k.namespace]
	if !ok {
		former = r.forgottenElsewhere
	}
	if !k.created.After(former) {
		return
	}
	if !ok && len(r.forgotten) >= maxForgotten {
		for _, at := range r.forgotten {
			if at.After(r.forgottenElsewhere) {
				r.forgottenElsewhere = at
			}
		}
		clear(r.forgotten)
	}
	r.forgotten[k.namespace] = k.created
}
