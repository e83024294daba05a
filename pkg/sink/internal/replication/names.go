package replication

import (
	"sync"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// totals are the highest totals of clients that this process has seen to be counted (rule
// Names). It is safe for concurrent use.
type totals struct {
	mu    sync.Mutex
	known *fairlru.Cache[totalKey, string, uint64] // in groups of one namespace
}

type totalKey struct {
	series occurrence.Digest
	event  counter.EventID
	client counter.Contributor
}

// maxTotals bounds the memory of totals, to about 8 MiB.
const maxTotals = 1 << 15

func newTotals() *totals {
	return &totals{known: fairlru.New[totalKey, string, uint64](maxTotals, nil)}
}

func (t *totals) get(k totalKey) uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	total, _ := t.known.Get(k)
	return total
}

func (t *totals) raise(namespace string, k totalKey, total uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if known, _ := t.known.Peek(k); total > known {
		t.known.Add(k, namespace, total, 1)
	}
}
