package observer

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// listTimeout bounds a request for one page; openTimeout one for a watch, until its response
	// begins.
	listTimeout = time.Minute
	openTimeout = 30 * time.Second
	// A watch ends after minWatch to twice as much, as those of client-go's reflectors: if the
	// server does not end it, it is closed watchGrace later.
	minWatch   = 5 * time.Minute
	watchGrace = 30 * time.Second
	// shortWatch is how long a watch must have lasted for its end not to count as a failure.
	shortWatch = time.Second
	// maxRetryAfter limits the delay that a server can ask for.
	maxRetryAfter = 5 * time.Minute
	// maxCalls is the number of calls that a reader, or the shared watch, can have begun: one, and
	// those that have ignored the end of their context.
	maxCalls = 4
)

var (
	errCallTimeout = errors.New("no response in time")
	errShortWatch  = errors.New("the watch ended at once")
)

// newer reports whether a resourceVersion is above another one. The empty one is below all others.
func newer(a, b string) bool {
	if a == "" || b == "" {
		return a != ""
	}
	order, err := resourceversion.CompareResourceVersion(a, b)
	return err == nil && order > 0 // everything was checked by valid before
}

// valid reports whether a resourceVersion can be compared.
func valid(rv string) bool {
	_, err := resourceversion.CompareResourceVersion(rv, rv)
	return err == nil
}

// newest returns the higher one of two resourceVersions.
func newest(a, b string) string {
	if newer(a, b) {
		return a
	}
	return b
}

// isExpired: the apiserver no longer has what was requested, and answers 410.
func isExpired(err error) bool { return apierrors.IsResourceExpired(err) || apierrors.IsGone(err) }

// client makes the calls of one reader, or of the shared watch, which end in time.
type client struct {
	source Source
	places chan struct{}
}

func newClient(s Source) *client { return &client{source: s, places: make(chan struct{}, maxCalls)} }

// list requests one page.
func (c *client) list(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errCallTimeout)
	defer cancel()
	page, err := call(ctx, c, func() (*corev1.EventList, error) { return c.source.List(ctx, limit, token) }, nil)
	switch {
	case err != nil:
		return nil, err
	case !valid(page.ResourceVersion):
		return nil, resourceversion.InvalidResourceVersion{}
	}
	return page, nil
}

// watch opens a watch. The caller must call its stop.
func (c *client) watch(ctx context.Context, after string) (*stream, error) {
	lifetime := time.Duration(float64(minWatch) * (1 + rand.Float64()))
	ctx, cancel := context.WithTimeout(ctx, lifetime+watchGrace)
	opening, opened := context.WithTimeoutCause(ctx, openTimeout, errCallTimeout)
	defer opened()
	w, err := call(opening, c, func() (watch.Interface, error) { return c.source.Watch(ctx, after, lifetime) }, watch.Interface.Stop)
	if err != nil {
		cancel()
		return nil, err
	}
	return &stream{ctx: ctx, cancel: cancel, watch: w, opened: time.Now()}, nil
}

// call returns when ctx ends, even if do does not. Then do has a place until it returns, and its
// result is discarded.
func call[T any](ctx context.Context, c *client, do func() (T, error), discard func(T)) (T, error) {
	var none T
	select {
	case c.places <- struct{}{}:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result)
	go func() {
		value, err := do()
		<-c.places
		select {
		case done <- result{value, err}:
		case <-ctx.Done():
			if err == nil && discard != nil {
				discard(value)
			}
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
}

// stream is an open watch.
type stream struct {
	ctx    context.Context
	cancel context.CancelFunc
	watch  watch.Interface
	opened time.Time
	read   bool // something was
}

func (s *stream) stop() {
	s.cancel()
	s.watch.Stop()
}

// ended is the error of a watch that has ended without one.
func (s *stream) ended() error {
	if s.read || time.Since(s.opened) >= shortWatch {
		return nil
	}
	return errShortWatch
}

// change is one event of a watch.
type change struct {
	rv    string
	event *corev1.Event // nil if nothing was stored: a deletion or a bookmark
}

// parse returns what an event of a watch says. An error ends the watch.
func (s *stream) parse(e watch.Event) (change, error) {
	if e.Type == watch.Error {
		return change{}, apierrors.FromObject(e.Object)
	}
	event, ok := e.Object.(*corev1.Event)
	if !ok || !valid(event.ResourceVersion) {
		return change{}, errors.New("the watch has sent something other than an Event with a resourceVersion")
	}
	s.read = true
	switch e.Type {
	case watch.Added, watch.Modified:
		slim(event)
		return change{event.ResourceVersion, event}, nil
	default:
		return change{rv: event.ResourceVersion}, nil
	}
}

// backoff is the delay between failures.
type backoff struct{ steps wait.Backoff }

// next returns how long to wait after an error. nil resets it.
func (b *backoff) next(err error) time.Duration {
	if err == nil || b.steps.Duration == 0 {
		b.steps = wait.Backoff{Duration: 200 * time.Millisecond, Factor: 2, Jitter: 0.5, Steps: 12, Cap: 30 * time.Second}
	}
	if err == nil {
		return 0
	}
	delay := b.steps.Step()
	if seconds, ok := apierrors.SuggestsClientDelay(err); ok {
		delay = max(delay, min(time.Duration(seconds)*time.Second, maxRetryAfter))
	}
	return delay
}

// inconsistentToken is the token that continues an expired list with what is stored now.
func inconsistentToken(err error) string {
	if status, ok := errors.AsType[*apierrors.StatusError](err); ok {
		return status.ErrStatus.ListMeta.Continue
	}
	return ""
}
