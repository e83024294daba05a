package intake

import (
	"context"
	"slices"
	"sync"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/internal/shares"
)

// maxPending is the maximum number of pending reports of one name. The next request
// waits until one has its outcome. A client that counts by itself has one or two in
// flight, and more only if it has timed out on earlier ones.
const maxPending = 16

// maxUnused is how many locks are kept for the next names.
const maxUnused = 64

// key is a name that a client posted.
type key struct{ namespace, name string }

// names holds the views, and the pending reports that follow from them. A request
// changes a name under the lock of that name: from when it reads the view until its
// report is recorded. The next request continues from there, although the outcome of
// the first one is not known.
type names struct {
	mu      sync.Mutex
	locks   map[key]*nameLock
	unused  []*nameLock                        // at most maxUnused, for the next names
	views   *fairlru.Cache[key, string, *view] // in groups of one tenant
	pending *shares.Shares                     // in bytes of the views of pending reports
	reports int64                              // number of reports so far

	maxNames, maxBytes int64 // maxBytes is the limit of views and the limit of pending
}

// nameLock is the lock of one name. It exists while somebody holds it or waits for it,
// and while reports of the name are pending.
type nameLock struct {
	locked  chan struct{} // holds a token while it is locked
	refs    int           // the holder, the waiters and the pending reports
	pending []*report     // oldest first
}

func newNames(maxNames int, maxBytes int64) *names {
	return &names{
		locks:    make(map[key]*nameLock),
		views:    fairlru.New[key, string, *view](int64(maxNames)*maxBytes, nil),
		pending:  shares.New(maxBytes),
		maxNames: int64(maxNames),
		maxBytes: maxBytes,
	}
}

// weight is the size of a view as a part of the product of both limits: its part of
// the names or its part of the bytes, whichever is more. So neither limit is exceeded,
// and a tenant with few large views has the same share as one with many small views.
func (n *names) weight(v *view) int64 { return max(n.maxBytes, v.size*n.maxNames) }

// known is the state of a name.
type known struct {
	// last is the newest report, if it is pending, or else nil.
	last *report
	// view is that of the newest report, pending or settled. It is nil if there is neither.
	view *view
	// settled is the total of the settled view.
	settled int64
}

// known returns the present state of a name.
func (n *names) known(k key) (out known) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if out.view, out.last = n.newest(k); out.view != nil && out.view.gone {
		out.view = nil
	}
	if v, ok := n.views.Peek(k); ok && !v.gone {
		out.settled = v.total
	}
	return out
}

// newest returns the view of the newest report of a name, pending or settled, nil if there is
// none, and the report if it is pending.
func (n *names) newest(k key) (*view, *report) {
	v, _ := n.views.Get(k)
	if l := n.locks[k]; l != nil && len(l.pending) > 0 {
		// A later one may have ended before: deferred, or filtered.
		if last := l.pending[len(l.pending)-1]; v == nil || last.number > v.number {
			return last.pendingView(), last
		}
	}
	return v, nil
}

// count is the number of views.
func (n *names) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.views.Len()
}

// lock locks a name, and waits until the caller of the request may have one more
// pending report of it. unlock must be called once, unless it fails.
func (n *names) lock(ctx context.Context, k key) error {
	n.mu.Lock()
	l := n.ref(k)
	n.mu.Unlock()
	if err := l.lock(ctx); err != nil {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.unref(k, l)
		return err
	}
	f := shares.FlowOf(userOf(ctx), k.namespace)
	for oldest := n.blocking(l, f); oldest != nil; oldest = n.blocking(l, f) {
		var err error
		if withoutSeat(ctx, func() { err = oldest.wait(ctx) }); err != nil {
			n.unlock(k)
			return ctx.Err()
		}
	}
	return nil
}

// lock waits without a seat.
func (l *nameLock) lock(ctx context.Context) (err error) {
	select {
	case l.locked <- struct{}{}:
		return nil
	default:
	}
	withoutSeat(ctx, func() {
		select {
		case l.locked <- struct{}{}:
		case <-ctx.Done():
			err = ctx.Err()
		}
	})
	return err
}

// blocking returns the report that must end before a flow may have another one
// pending, or nil. The first report of a name is always allowed: the number of names
// with one is limited by the pending occurrences.
func (n *names) blocking(l *nameLock, f flow) *report {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(l.pending) > 0 && (len(l.pending) >= maxPending || n.pending.Available(f) == 0) {
		return l.pending[0]
	}
	return nil
}

// lockForPost locks a name for a POST. It returns without the lock the same POST if
// that is pending, or errNameKnown if the name has a view. A POST that raises the total
// of another pending POST gets the lock at once; any other one waits for its end.
func (n *names) lockForPost(ctx context.Context, k key, r *report) (joined *report, err error) {
	if joined := n.repeated(k, r); joined != nil {
		return joined, nil
	}
	if err := n.lock(ctx, k); err != nil {
		return nil, err
	}
	for {
		joined, before, err := n.startPost(k, r)
		if joined != nil || err != nil {
			n.unlock(k)
			return joined, err
		}
		if before == nil {
			return nil, nil
		}
		if err := before.wait(ctx); err != nil {
			n.unlock(k)
			return nil, ctx.Err()
		}
	}
}

// tryLockForPost is lockForPost without waiting: it returns errNamePending instead.
func (n *names) tryLockForPost(k key, r *report) (joined *report, err error) {
	if joined := n.repeated(k, r); joined != nil {
		return joined, nil
	}
	n.mu.Lock()
	l := n.ref(k)
	select {
	case l.locked <- struct{}{}:
		n.mu.Unlock()
	default:
		n.unref(k, l)
		n.mu.Unlock()
		return nil, errNamePending
	}
	joined, before, err := n.startPost(k, r)
	if joined == nil && err == nil {
		f := shares.FlowOf(r.occurrence.User, k.namespace)
		if before != nil || n.blocking(l, f) != nil {
			err = errNamePending
		}
	}
	if joined != nil || err != nil {
		n.unlock(k)
	}
	return joined, err
}

// startPost decides about a POST of a name that is locked: it returns the same POST if
// that is pending, errNameKnown if the name has a view, or the pending report for whose
// end the POST has to wait.
func (n *names) startPost(k key, r *report) (joined, before *report, err error) {
	now := n.known(k)
	joined = n.repeated(k, r)
	switch {
	case joined != nil:
		return joined, nil, nil
	case now.settled > 0:
		return nil, nil, errNameKnown
	case now.last != nil && !r.raises(now.last):
		return nil, now.last, nil
	}
	return nil, nil, nil
}

// repeated returns the pending POST that another one repeats, or nil.
func (n *names) repeated(k key, r *report) *report {
	n.mu.Lock()
	defer n.mu.Unlock()
	if l := n.locks[k]; l != nil {
		for _, pending := range l.pending {
			if pending.post && pending.repeats(r) {
				return pending
			}
		}
	}
	return nil
}

// unlock unlocks a name.
func (n *names) unlock(k key) {
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.locks[k]
	<-l.locked
	n.unref(k, l)
}

// begin adds a pending report right before it is recorded. Its name is locked.
func (n *names) begin(r *report) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.reports++
	r.number = n.reports
	before, _ := n.newest(r.key)
	r.follows(before)
	r.flow = shares.FlowOf(r.occurrence.User, r.key.namespace)
	// The flow had room for a part of the view. The rest is not counted, and the next
	// report of the flow waits.
	r.held = n.pending.AcquireUpTo(r.flow, r.viewSize())
	l := n.ref(r.key)
	l.pending = append(l.pending, r)
}

// settled ends a report that was written. Its view is v.
func (n *names) settled(r *report, v *view) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, pending := range n.end(r) {
		pending.begun = pending.pendingView().of(v.event)
	}
	n.remember(r.key, v)
}

// accepted ends a report that will be written, and returns its view.
func (n *names) accepted(r *report) *view {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.keepPending(r)
}

// filtered ends a report that rules have filtered, and returns its view.
func (n *names) filtered(r *report) *view {
	n.mu.Lock()
	defer n.mu.Unlock()
	r.filtered += r.fresh
	v := n.keepPending(r)
	v.filtered = r.filtered
	return v
}

// keepPending ends a report, and keeps its view as it was while it was pending.
func (n *names) keepPending(r *report) *view {
	n.end(r)
	v := r.pendingView()
	n.remember(r.key, v)
	return v
}

// dropped ends a report that was not written. With forget, the stored Event is gone and
// the settled view is removed too, except for what rules have filtered.
func (n *names) dropped(r *report, forget bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.end(r)
	if !forget {
		return
	}
	v, ok := n.views.Peek(r.key)
	if !ok || v.filtered == 0 {
		n.views.Remove(r.key)
		return
	}
	gone := *v
	gone.gone = true
	n.views.Add(r.key, v.tenant, &gone, n.weight(v))
}

// pendingView returns the view of a report that is pending. Most end before anybody asks for it.
func (r *report) pendingView() *view {
	if r.begun == nil {
		r.begun = r.begins()
	}
	return r.begun
}

// end removes a pending report, and returns the others of its name, until the next change of it.
func (n *names) end(r *report) []*report {
	l := n.locks[r.key]
	l.pending = slices.DeleteFunc(l.pending, func(pending *report) bool { return pending == r })
	n.pending.Release(r.flow, r.held)
	n.unref(r.key, l)
	return l.pending
}

// remember keeps a view, unless there is one of a later report.
func (n *names) remember(k key, v *view) {
	if old, ok := n.views.Peek(k); ok && old.number > v.number {
		return
	}
	n.views.Add(k, v.tenant, v, n.weight(v))
}

func (n *names) ref(k key) *nameLock {
	l := n.locks[k]
	if l == nil {
		if last := len(n.unused) - 1; last >= 0 {
			l, n.unused = n.unused[last], n.unused[:last]
		} else {
			l = &nameLock{locked: make(chan struct{}, 1)}
		}
		n.locks[k] = l
	}
	l.refs++
	return l
}

func (n *names) unref(k key, l *nameLock) {
	if l.refs--; l.refs > 0 {
		return
	}
	delete(n.locks, k)
	if len(n.unused) < maxUnused {
		n.unused = append(n.unused, l)
	}
}
