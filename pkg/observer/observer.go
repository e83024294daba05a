package observer

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/internal/sleep"
)

// The requests, as metric labels and reasons of log lines.
const (
	callCheck  = "check"  // of the current resourceVersion
	callWatch  = "watch"  // the shared one
	callReread = "reread" // a watch of a reader
	callList   = "list"   // a page for a reader
	callBuffer = "buffer" // no request: a block that cannot be encoded or decoded
)

// Observer watches all Events, and buffers them for its readers. It is safe for concurrent use. Run
// must be called once; readers may be made before, and end with their Close.
type Observer struct {
	client  *client
	log     *sharedLog
	sizes   sizes
	metrics *Metrics
	lines   *ratelimitedlog.Limiter
	backoff backoff
	fetches *semaphore.Weighted

	mu     sync.Mutex
	status Status
}

// Status is the state of the shared watch, and the last failure of any request.
type Status struct {
	// Connected: the watch is open.
	Connected bool
	// Since is when Connected changed. It is zero before the first connection.
	Since time.Time
	// Position is what the watch has reached.
	Position Cursor
	// Err is the last failure, or nil, and FailedAt when it was. A watch that has to begin anew
	// since the apiserver has compacted its history is none.
	Err      error
	FailedAt time.Time
}

// New returns an Observer that does nothing before Run.
func New(opts Options) (*Observer, error) {
	if opts.MaxBytes == 0 {
		opts.MaxBytes = DefaultMaxBytes
	}
	if err := opts.validate(); err != nil {
		return nil, fmt.Errorf("observer: %w", err)
	}
	return newObserver(opts, defaultSizes)
}

func newObserver(opts Options, s sizes) (*Observer, error) {
	c, err := newCodec()
	if err != nil {
		return nil, fmt.Errorf("observer: %w", err)
	}
	o := &Observer{
		client:  newClient(opts.Source),
		log:     newSharedLog(opts.Start, opts.MaxBytes, s, c),
		sizes:   s,
		lines:   ratelimitedlog.New(ratelimitedlog.Interval),
		fetches: semaphore.NewWeighted(maxFetches),
	}
	if o.metrics = opts.Metrics; o.metrics == nil {
		if o.metrics, err = NewMetrics(nil); err != nil {
			return nil, fmt.Errorf("observer: %w", err)
		}
	}
	o.metrics.current.Store(o)
	return o, nil
}

// Run watches until ctx ends, and returns nil. A request that ignores the end of its context is
// abandoned, and may still run then. Logs go to the logger of ctx.
func (o *Observer) Run(ctx context.Context) error {
	defer o.metrics.current.CompareAndSwap(o, nil) // its buffer is garbage now
	for ctx.Err() == nil {
		request, err := o.follow(ctx)
		o.setConnected(false)
		if ctx.Err() != nil {
			break
		}
		o.metrics.restarts.WithLabelValues(reasonOf(err)).Inc()
		if err != nil && !isExpired(err) {
			o.failed(ctx, request, err)
		}
		_ = sleep.For(ctx, o.backoff.next(err))
	}
	return nil
}

// follow checks the current resourceVersion, and then watches until the watch ends. It returns the
// request that has failed.
//
// Without the check, a watch from a position that etcd has lost in a restore would be silent until
// the history has reached it: the apiserver has no watch cache of Events that would refuse it.
func (o *Observer) follow(ctx context.Context) (request string, err error) {
	select {
	case <-o.log.recheck: // this is it
	default:
	}
	before := o.log.point()
	page, err := o.client.list(ctx, 1, "")
	if err != nil {
		return callCheck, err
	}
	current := page.ResourceVersion
	if !o.answered(ctx, current, before) {
		current = o.log.point().position
	}
	o.log.connected(current)
	at := o.log.point()
	s, err := o.client.watch(ctx, at.position)
	if err == nil {
		defer s.stop()
		o.setConnected(true)
		err = o.read(s, at.epoch)
	}
	if isExpired(err) {
		// Readers that have not read all up to current find out what was missed.
		o.log.cut(current, at)
	}
	return callWatch, err
}

// read adds what a watch sends to the log. It never waits for a reader.
func (o *Observer) read(s *stream, epoch int64) error {
	for {
		select {
		case <-s.ctx.Done():
			return nil
		case <-o.log.recheck:
			return nil
		case e, ok := <-s.watch.ResultChan():
			if !ok {
				return s.ended()
			}
			c, err := s.parse(e)
			if err != nil {
				return err
			}
			if o.wentBack(s.ctx, c.rv, o.log.point().position) {
				return nil
			}
			now := time.Now()
			if !o.log.add(c, Version{c.event, now}, epoch) {
				return nil
			}
			o.metrics.lastChange.Set(float64(now.UnixNano()) / float64(time.Second))
			if c.event == nil {
				continue
			}
			o.metrics.versions.Inc()
			o.backoff.next(nil)
			if err := o.log.compact(); err != nil {
				o.failed(s.ctx, callBuffer, err)
			}
		}
	}
}

// answered is that of the log, and reports a restore. It returns false if another epoch has begun.
func (o *Observer) answered(ctx context.Context, rv string, before point) bool {
	restored, ok := o.log.answered(rv, before)
	if restored {
		o.metrics.restores.Inc()
		klog.FromContext(ctx).Info("etcd was restored from a backup: its resourceVersion is lower than before. All stored Events are delivered again",
			"resourceVersion", rv, "before", before.seen, "epoch", before.epoch+1)
	}
	return ok
}

// wentBack reports whether a watch has sent a resourceVersion below what it has sent before, and begins an epoch if so:
// a watch that the apiserver resumes by itself goes on in the history that was restored. The check finds none of that once
// the new history is longer than the old one was.
func (o *Observer) wentBack(ctx context.Context, rv, position string) bool {
	if !newer(position, rv) {
		return false
	}
	o.answered(ctx, rv, o.log.point())
	notify.Wake(o.log.recheck)
	return true
}

// failed counts and logs a failure, and keeps it for Status.
func (o *Observer) failed(ctx context.Context, request string, err error) {
	o.metrics.failures.WithLabelValues(request).Inc()
	o.mu.Lock()
	o.status.Err, o.status.FailedAt = err, time.Now()
	o.mu.Unlock()
	if o.lines.Allow(request) {
		klog.FromContext(ctx).Error(err, "Reading Events from the apiserver failed, and is retried",
			"request", request, "quietFor", ratelimitedlog.Interval)
	}
}

func (o *Observer) setConnected(connected bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.status.Connected != connected {
		o.status.Connected, o.status.Since = connected, time.Now()
	}
}

// Status returns the state of the shared watch.
func (o *Observer) Status() Status {
	at := o.log.point()
	o.mu.Lock()
	defer o.mu.Unlock()
	s := o.status
	s.Position = Cursor{at.epoch, at.position}
	return s
}

// reasonOf is why a watch has to be opened again, as a metric label.
func reasonOf(err error) string {
	switch {
	case err == nil:
		return reasonEnded
	case isExpired(err):
		return reasonExpired
	case apierrors.IsForbidden(err), apierrors.IsUnauthorized(err):
		return reasonForbidden
	default:
		return reasonFailed
	}
}
