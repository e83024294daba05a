package delivery

import (
	"time"

	"github.com/eventd/eventd/pkg/observer"
)

// NewSource returns an observer as the source of a Delivery.
func NewSource(o *observer.Observer) Source { return observing{o} }

type observing struct{ *observer.Observer }

func (o observing) Reader(start observer.Start) Reader { return observed{o.Observer.Reader(start)} }

type observed struct{ *observer.Reader }

func (r observed) Observed() int64 { return r.Status().Observed }

func (r observed) OldestPending() time.Time {
	age := r.Status().OldestPending
	if age == 0 {
		return time.Time{}
	}
	return time.Now().Add(-age)
}
