package intake

import (
	"context"
	"sync"
	"time"
)

// deadline is a context that ends at a time, as one of context.WithDeadline. It takes no timer before somebody
// waits for its end, and most reports never wait. Set it with begin; it is safe for use by many goroutines then.
type deadline struct {
	values context.Context
	ends   context.Context // with it, this one ends too
	at     time.Time
	call   *call // of callOf, nil to find it in values

	mu     sync.Mutex
	timed  context.Context // nil until somebody waits
	cancel context.CancelFunc
	ended  bool
}

// begin sets a deadline. It must end.
func (d *deadline) begin(values, ends context.Context, at time.Time) {
	d.values, d.ends, d.at = values, ends, at
}

// end cancels the context.
func (d *deadline) end() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.ended = true; d.timed != nil {
		d.cancel()
	}
}

// wait returns a context that has a timer.
func (d *deadline) wait() context.Context {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch parent := (&valuesOf{d.ends, d.values}); {
	case d.timed != nil:
	case d.ended:
		d.timed, d.cancel = context.WithCancel(parent)
		d.cancel()
	default:
		d.timed, d.cancel = context.WithDeadline(parent, d.at)
	}
	return d.timed
}

// Deadline implements context.Context.
func (d *deadline) Deadline() (time.Time, bool) { return d.at, true }

// Done implements context.Context.
func (d *deadline) Done() <-chan struct{} { return d.wait().Done() }

// Err implements context.Context.
func (d *deadline) Err() error {
	d.mu.Lock()
	lasts := d.timed == nil && !d.ended
	d.mu.Unlock()
	if lasts && d.ends.Err() == nil && time.Now().Before(d.at) {
		return nil
	}
	return d.wait().Err() // which stays the same
}

// Value implements context.Context. A context that is derived from this one finds the one that it has to end with.
func (d *deadline) Value(key any) any {
	if d.call != nil && key == (callKey{}) {
		return d.call
	}
	d.mu.Lock()
	of := d.timed
	d.mu.Unlock()
	if of == nil {
		of = d.values
	}
	return of.Value(key)
}

// valuesOf is a context with the values of another one.
type valuesOf struct {
	context.Context
	values context.Context
}

// AfterFunc is for package context. Without it, a derived context may take a goroutine.
func (v *valuesOf) AfterFunc(f func()) (stop func() bool) { return context.AfterFunc(v.Context, f) }

// Value implements context.Context.
func (v *valuesOf) Value(key any) any { return v.values.Value(key) }
