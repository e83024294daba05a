package intake

import (
	"context"
	"sync"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/shares"
	"github.com/eventd/eventd/pkg/occurrence"
)

// maxOpen is how many reports of one name may wait for their outcome; the next
// request of the name waits until one has it. A client that counts by itself has
// one in flight, or two, and more only where it has given up on earlier ones.
const maxOpen = 16

// key is a name that a client posted.
type key struct{ namespace, name string }

// names holds the views, and the reports that follow from them and have not ended.
// One request at a time changes a name: its turn begins when it looks at the view
// and ends when what follows is recorded. The next one goes on from there, though
// the outcome of the first is open.
type names struct {
	mu      sync.Mutex
	turns   map[key]*turn
	views   *fairlru.Cache[key, string, *view] // in groups of one tenant
	open    *shares.Shares                     // in bytes of the views that reports which have not ended began
	reports int64                              // that were begun

	maxNames, maxBytes int64 // maxBytes is of either
}

// turn is there while anyone has, or waits for, the right to change a name, and
// while reports of it have not ended.
type turn struct {
	taken chan struct{} // holds a token while someone has it
	users int           // who has it, all who wait, and open reports
	open  []*report     // that have not ended, oldest first
}

func newNames(maxNames int, maxBytes int64) *names {
	return &names{
		turns:    make(map[key]*turn),
		views:    fairlru.New[key, string, *view](int64(maxNames)*maxBytes, nil),
		open:     shares.New(maxBytes),
		maxNames: int64(maxNames),
		maxBytes: maxBytes,
	}
}

// weight is what a view takes of the product of both limits: its part of the names
// or its part of the bytes, whichever is more. So neither is exceeded, and who has
// few large views has as large a share as who has many small ones.
func (n *names) weight(v *view) int64 { return max(n.maxBytes, v.size*n.maxNames) }

// known is what is known of a name.
type known struct {
	// last is the newest report that has not ended, nil if there is none.
	last *report
	// view is the one that the last report began or, without one, the settled one;
	// nil if there is neither.
	view *view
	// settled is the total of the view that follows from reports that have ended.
	settled int64
}

// known returns what is known of a name now.
func (n *names) known(k key) known {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.look(k)
}

func (n *names) look(k key) (out known) {
	if v, ok := n.views.Get(k); ok {
		out.view, out.settled = v, v.total
	}
	if t := n.turns[k]; t != nil && len(t.open) > 0 {
		out.last = t.open[len(t.open)-1]
		out.view = out.last.begun
	}
	return out
}

// count is the number of views.
func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.views.Len()
}

// take waits for the turn at a name, and until one more report of it may be begun by
// the caller of a request. Whoever gets it must see to it that release is called once.
func (n *names) take(ctx context.Context, k key) error {
	n.mu.Lock()
	t := n.enter(k)
	n.mu.Unlock()
	if err := t.take(ctx); err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.leave(k, t)
		return err
	}
	f := flow{Tenant: occurrence.TenantOf(userOf(ctx)), Namespace: k.namespace}
	for oldest := n.full(t, f); oldest != nil; oldest = n.full(t, f) {
		var err error
		if withoutSeat(ctx, func() { err = oldest.wait(ctx) }); err != nil {
			n.release(k)
			return ctx.Err()
		}
	}
	return nil
}

// take waits for the token, without a seat.
func (t *turn) take(ctx context.Context) (err error) {
	select {
	case t.taken <- struct{}{}:
		return nil
	default:
	}
	withoutSeat(ctx, func() {
		select {
		case t.taken <- struct{}{}:
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	return err
}

// full returns the report that has to end before a flow may begin another one, or nil.
// The first report of a name may always be begun: how many names wait is bounded by
// what may be pending.
func (n *names) full(t *turn, f flow) *report {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(t.open) > 0 && (len(t.open) >= maxOpen || n.open.Room(f) == 0) {
		return t.open[0]
	}
	return nil
}

// takeForPost takes the turn for a POST. It returns instead, without the turn,
// the same POST if that has not ended yet, or errNameKnown if the name has a view.
// One that raises the total of another POST that has not ended has its turn at
// once; any other waits for that one's end.
func (n *names) takeForPost(ctx context.Context, k key, r *report) (joined *report, err error) {
	if joined := n.repeated(k, r); joined != nil {
		return joined, nil
	}
	if err := n.take(ctx, k); err != nil {
		return nil, err
	}
	for {
		now := n.known(k)
		joined := n.repeated(k, r)
		switch {
		case joined != nil:
			n.release(k)
			return joined, nil
		case now.settled > 0:
			n.release(k)
			return nil, errNameKnown
		case now.last == nil || r.raises(now.last):
			return nil, nil
		}
		if err := now.last.wait(ctx); err != nil {
			n.release(k)
			return nil, ctx.Err()
		}
	}
}

// repeated returns the POST that has not ended and that another one repeats, or nil.
func (n *names) repeated(k key, r *report) *report {
	n.mu.Lock()
	defer n.mu.Unlock()
	if t := n.turns[k]; t != nil {
		for _, open := range t.open {
			if open.post && open.repeats(r) {
				return open
			}
		}
	}
	return nil
}

// release ends the turn at a name.
func (n *names) release(k key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t := n.turns[k]
	<-t.taken
	n.leave(k, t)
}

// begin notes a report that is about to be recorded, for whoever has the turn.
func (n *names) begin(r *report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports++
	r.number = n.reports
	r.begun = r.begins()
	r.flow = flow{Tenant: r.begun.tenant, Namespace: r.key.namespace}
	// There may be less room than it takes, and there was room for some of it: what
	// it takes beyond that is not counted, and the next one of its flow waits.
	r.held = n.open.AcquireUpTo(r.flow, r.begun.size)
	t := n.enter(r.key)
	t.open = append(t.open, r)
}

// settled notes that a report was written, as the given view says.
func (n *names) settled(r *report, v *view) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, open := range n.end(r) {
		open.begun = open.begun.of(v.event)
	}
	n.remember(r.key, v)
}

// deferred notes that a report will be written: its view is the one that it began.
func (n *names) deferred(r *report) *view {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end(r)
	n.remember(r.key, r.begun)
	return r.begun
}

// dropped notes that a report was not written. With forget, there is nothing left of
// what was written before.
func (n *names) dropped(r *report, forget bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end(r)
	if forget {
		n.views.Remove(r.key)
	}
}

// end ends a report, and returns those of its name that are left.
func (n *names) end(r *report) []*report {
	t := n.turns[r.key]
	left := make([]*report, 0, len(t.open))
	for _, open := range t.open {
		if open != r {
			left = append(left, open)
		}
	}
	t.open = left
	n.open.Release(r.flow, r.held)
	n.leave(r.key, t)
	return left
}

// remember keeps a view, unless one from a later report is there.
func (n *names) remember(k key, v *view) {
	if old, ok := n.views.Peek(k); ok && old.number > v.number {
		return
	}
	n.views.Add(k, v.tenant, v, n.weight(v))
}

func (n *names) enter(k key) *turn {
	t := n.turns[k]
	if t == nil {
		t = &turn{taken: make(chan struct{}, 1)}
		n.turns[k] = t
	}
	t.users++
	return t
}

func (n *names) leave(k key, t *turn) {
	if t.users--; t.users == 0 {
		delete(n.turns, k)
	}
}
