package sink

import (
	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// idleSeries remembers the states of stored series without pending occurrences, so that the next write of each is one
// request. A namespace that has its share replaces its own. Its owner guards it.
type idleSeries = fairlru.Cache[occurrence.Key, string, counter.State]

// usualListBytes are those of a series that one instance has written, and one client reported.
const usualListBytes = 48

// remember adds the state of a counter. One that has longer lists than usual takes the place of several.
func (s *Sink) remember(c *counter.Counter) {
	state := c.State()
	s.idle.Add(c.Key, c.Namespace, state, 1+int64(max(0, state.ListBytes()-usualListBytes)+IdleSeriesBytes-1)/IdleSeriesBytes)
}

// recall sets the state of a new counter, and forgets it. It returns false if there is none.
func (s *Sink) recall(c *counter.Counter) bool {
	state, ok := s.idle.Peek(c.Key)
	if ok {
		s.idle.Remove(c.Key)
		c.SetState(state)
	}
	return ok
}

// firstRequests estimates for each namespace how often the Event of a series exists of which the
// process has no state: after a restart or an eviction, often. A create of such an Event needs a
// read and a patch after it, two more requests; a read of one that does not exist needs a create
// after it, one more. So a read comes first if the Event exists more often than not. Its owner
// guards it.
type firstRequests struct {
	// exist are the shares above almostNever.
	exist *simplelru.LRU[string, float32]
}

const (
	// maxEstimates bounds the namespaces. Others begin with a create.
	maxEstimates = 4096
	// estimateWeight is the weight of the last answer.
	estimateWeight = 1. / 8
	almostNever    = 1. / 64
)

func newFirstRequests() (*firstRequests, error) {
	exist, err := simplelru.NewLRU[string, float32](maxEstimates, nil)
	return &firstRequests{exist}, err
}

// isRead reports whether the first request of a series is a read.
func (f *firstRequests) isRead(namespace string) bool {
	share, _ := f.exist.Get(namespace)
	return share > 1./2
}

// answered records the answer to a first request.
func (f *firstRequests) answered(namespace string, v apiclient.Verb, class apiclient.Class) {
	var exists float32
	switch {
	case v.IsRead() && class == apiclient.ClassOK, v == apiclient.VerbCreate && class == apiclient.ClassExists:
		exists = 1
	case v.IsRead() && class == apiclient.ClassNotFound, v == apiclient.VerbCreate && class == apiclient.ClassOK:
	default:
		return
	}
	share, _ := f.exist.Peek(namespace)
	if share += (exists - share) * estimateWeight; share < almostNever {
		f.exist.Remove(namespace)
	} else {
		f.exist.Add(namespace, share)
	}
}
