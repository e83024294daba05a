package intake

import (
	"context"
	"sync"

	"github.com/eventd/eventd/internal/fairlru"
)

// key is a name that a client posted.
type key struct{ namespace, name string }

// names holds the views, and lets one request at a time change one. A turn at
// a name begins with the request that takes it and ends when what the request
// reported has settled, which may be after the request itself.
type names struct {
	mu    sync.Mutex
	turns map[key]*turn
	views *fairlru.Cache[key, string, *view] // in groups of one tenant

	maxNames, maxBytes int64
}

// turn is there while anyone has, or waits for, the right to change a name.
type turn struct {
	taken chan struct{} // holds a token while someone has it
	users int           // who has it and all who wait
	post  *report       // the POST that has it, for others to join
}

func newNames(maxNames int, maxBytes int64) *names {
	return &names{
		turns:    make(map[key]*turn),
		views:    fairlru.New[key, string, *view](int64(maxNames)*maxBytes, nil),
		maxNames: int64(maxNames),
		maxBytes: maxBytes,
	}
}

// weight is what a view takes of the product of both limits: its part of the names
// or its part of the bytes, whichever is more. So neither is exceeded, and who has
// few large views has as large a share as who has many small ones.
func (n *names) weight(v *view) int64 { return max(n.maxBytes, v.size*n.maxNames) }

// view returns the view of a name, or nil.
func (n *names) view(k key) *view {
	n.mu.Lock()
	defer n.mu.Unlock()
	v, _ := n.views.Get(k)
	return v
}

// count is the number of views.
func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.views.Len()
}

// take waits for the turn at a name. Whoever gets it must see to it that
// release is called once.
func (n *names) take(ctx context.Context, k key) error {
	n.mu.Lock()
	t := n.enter(k)
	n.mu.Unlock()
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		n.mu.Lock()
		defer n.mu.Unlock()
		n.leave(k, t)
		return ctx.Err()
	}
}

// takeForPost takes the turn for a POST. It returns instead, without the turn,
// the same POST if that has it already, or errNameKnown if the name has a view.
func (n *names) takeForPost(ctx context.Context, k key, r *report) (joined *report, err error) {
	n.mu.Lock()
	if t := n.turns[k]; t != nil && t.post != nil && t.post.repeats(r) {
		defer n.mu.Unlock()
		return t.post, nil
	}
	n.mu.Unlock()

	if err := n.take(ctx, k); err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, known := n.views.Get(k); known {
		n.end(k)
		return nil, errNameKnown
	}
	n.turns[k].post = r
	return nil, nil
}

// release ends the turn at a name; a view that is given replaces the name's.
func (n *names) release(k key, v *view) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if v != nil {
		n.views.Add(k, v.tenant, v, n.weight(v))
	}
	n.end(k)
}

// forget removes the view of a name, for whoever has the turn.
func (n *names) forget(k key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.views.Remove(k)
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

func (n *names) end(k key) {
	t := n.turns[k]
	t.post = nil
	<-t.taken
	n.leave(k, t)
}
