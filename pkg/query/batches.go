package query

import (
	"math"
	"strings"
	"sync"
	"time"

	"github.com/eventd/eventd/pkg/history"
)

const (
	// maxBatchBytes limits what is kept of batches: those of a second of a storm.
	maxBatchBytes = 4 << 20
	// batchAge is how old the newest batch is, before another one is made: tails have their turns at different
	// times, and each gets at most the batches of a tailInterval.
	batchAge = tailInterval * 9 / 10
)

// selection is what a tail without an expression asks for. Those with equal ones get the same.
type selection struct {
	events, steps, sse, operator bool
	namespaces                   string
}

func (q *query) selection() selection {
	return selection{q.events, q.steps, q.sse, q.operator, strings.Join(q.Namespaces, ",")}
}

// place is where a tail is.
type place struct {
	events history.Place
	steps  uint64
}

// unlimited is after all places.
var unlimited = place{history.End, math.MaxUint64}

// lags reports whether something of what leads to another place is missing at p.
func (p place) lags(other place) bool { return p.events.Before(other.events) || p.steps < other.steps }

// batch is what tails with the same selection are sent next at a place. It is not changed.
type batch struct {
	to       place
	cursor   string // at its end
	complete bool   // there was no more when it was made
	marked   bool   // it ends with a bookmark
	plain    []byte
	packed   func() ([]byte, error) // compresses it once
}

// batches are the newest ones of each selection, so that 50 tails that are up to date cost little more than one. A tail
// that is at the beginning of none reads for itself, up to where the newest one ends: from there on, it is sent what the
// others are. Nobody waits for another tail. It is safe for concurrent use.
type batches struct {
	packer packer

	mu     sync.Mutex
	chains map[selection]*chain
	order  []link // of all, oldest first
	bytes  int
}

// chain has the batches of a selection, by the place at which they begin.
type chain struct {
	from map[place]*batch
	// newest is where the newest batch ends, and made when that was. There was no more then if it is complete.
	newest   place
	made     time.Time
	complete bool
}

type link struct {
	of   selection
	from place
}

func newBatches() *batches { return &batches{chains: make(map[selection]*chain)} }

// after returns the batch that begins at a place, nil if there is none, where the newest one ends, and whether it is
// too early for the next one.
func (b *batches) after(of selection, at place) (next *batch, newest place, early bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.chains[of]
	if c == nil {
		return nil, place{}, false
	}
	return c.from[at], c.newest, c.complete && time.Since(c.made) < batchAge
}

// add keeps a batch, unless another tail was faster, and forgets the oldest ones above the limit.
func (b *batches) add(of selection, from place, one *batch) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.chains[of]
	if c == nil {
		c = &chain{from: make(map[place]*batch)}
		b.chains[of] = c
	}
	if c.from[from] != nil {
		return
	}
	c.from[from] = one
	if c.newest.lags(one.to) {
		c.newest, c.made, c.complete = one.to, time.Now(), one.complete
	}
	b.order = append(b.order, link{of, from})
	for b.bytes += one.bytes(); b.bytes > maxBatchBytes; b.order = b.order[1:] {
		b.forget(b.order[0])
	}
}

func (b *batches) forget(l link) {
	c := b.chains[l.of]
	b.bytes -= c.from[l.from].bytes()
	if delete(c.from, l.from); len(c.from) == 0 {
		delete(b.chains, l.of)
	}
}

// bytes is about what the batch takes, compressed too.
func (b *batch) bytes() int { return 2*len(b.plain) + encodingBytes }
