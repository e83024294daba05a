// Package increase computes what each observed version of an Event adds to its count. What it
// remembers is bounded, and fair between namespaces: of an Event that is forgotten, the next version
// adds 1.
package increase

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/eventfields"
	"github.com/eventd/eventd/internal/fairlru"
)

// Bytes is the memory of one Event that is remembered, about.
const Bytes = 192

// maxForgotten bounds the namespaces of which it is known since when nothing was forgotten.
const maxForgotten = 1024

// Counts knows the counts of Events, from its beginning on. It is not safe for use by several
// goroutines. Make it with New.
type Counts struct {
	began time.Time
	known *fairlru.Cache[types.UID, string, known]
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

// New returns Counts that know no Event, and remember at most so many.
func New(most int64) *Counts {
	c := &Counts{began: time.Now(), forgotten: make(map[string]time.Time)}
	c.known = fairlru.New[types.UID, string](most, c.forget)
	return c
}

// Of returns the occurrences that a version adds to what was counted of its Event, or less than
// that if its count has become lower, by who may write it or a restored backup.
func (c *Counts) Of(e *corev1.Event) int64 {
	count := int64(eventfields.Count(e))
	former, ok := c.known.Get(e.UID)
	if !ok || former.count != count {
		c.known.Add(e.UID, e.Namespace, known{count, e.Namespace, e.CreationTimestamp.Time}, 1)
	}
	switch {
	case ok:
		return count - former.count
	case c.isNew(e):
		return count
	default:
		return 1
	}
}

// isNew reports whether an Event that is not known was created after the Counts began, and after
// all that were forgotten. A creation has no fraction of a second, so one of the same second is not.
func (c *Counts) isNew(e *corev1.Event) bool {
	forgotten, ok := c.forgotten[e.Namespace]
	if !ok {
		forgotten = c.forgottenElsewhere
	}
	return e.CreationTimestamp.After(c.began) && e.CreationTimestamp.After(forgotten)
}

// forget is called for each Event that is no longer known.
func (c *Counts) forget(_ types.UID, k known) {
	former, ok := c.forgotten[k.namespace]
	if !ok {
		former = c.forgottenElsewhere
	}
	if !k.created.After(former) {
		return
	}
	if !ok && len(c.forgotten) >= maxForgotten {
		for _, at := range c.forgotten {
			if at.After(c.forgottenElsewhere) {
				c.forgottenElsewhere = at
			}
		}
		clear(c.forgotten)
	}
	c.forgotten[k.namespace] = k.created
}
