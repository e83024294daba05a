package sink

import (
	"hash/maphash"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/internal/fairstore"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// idleSeries remembers the states of stored series without pending occurrences, so that the next
// write of each is one request. Its owner guards it.
type idleSeries struct {
	seed   maphash.Seed
	states *fairstore.Store // in groups of one namespace
	buffer []byte
}

func newIdleSeries(limit int) *idleSeries {
	return &idleSeries{seed: maphash.MakeSeed(), states: fairstore.New(limit)}
}

// hash returns the key of a series in the store, which is half as long as its Key. A series with the
// hash of another costs two requests more, and no count: nothing settles on a state alone
// (counter.AppendState).
func (i *idleSeries) hash(k occurrence.Key) uint64 { return maphash.Comparable(i.seed, k) }

func (i *idleSeries) has(k occurrence.Key) bool { return i.states.Has(i.hash(k)) }

func (i *idleSeries) add(c *counter.Counter) {
	i.buffer = c.AppendState(i.buffer[:0])
	i.states.Add(i.hash(c.Key), c.Namespace, i.buffer)
}

// recall sets the state of a new counter, and forgets it. It returns false if there is none.
func (i *idleSeries) recall(c *counter.Counter) bool {
	state, ok := i.states.Take(i.hash(c.Key))
	if ok {
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
