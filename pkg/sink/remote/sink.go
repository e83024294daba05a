// Package remote is the sink of a process that reports to eventd instead of the apiserver:
// it sends occurrences in batches (docs/batch.md), and eventd correlates and writes them.
//
// The contract:
//
//   - Add never waits for eventd.
//   - Occurrences of one series that wait together are one Event with their number as its
//     count. It gets a name of its own when it is sent first, and keeps it: eventd counts it
//     once, however often it is sent (docs/counting.md).
//   - Each occurrence settles once: as acknowledged, dropped for a reason, or uncertain. What
//     eventd has acknowledged, eventd accounts for.
//   - Pending occurrences are bounded in number and bytes. A namespace below the largest one
//     loses nothing to it. Of a namespace, Warnings evict Normals that wait.
//   - Of each namespace and API, one batch is in flight. One that fails delays its namespace
//     and API only, as long as fewer hang than Options.Concurrency.
//
// A Sink has goroutines only while requests are in flight. Close ends them.
package remote

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/internal/notify"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// Sink sends occurrences to eventd. It is safe for use by many goroutines. Make it with New,
// and end it with Close.
type Sink struct {
	client  Client
	ledger  *ledger.Ledger
	options Options
	metrics *metrics

	// requests is the context of all requests.
	requests context.Context
	cancel   context.CancelCauseFunc

	mu       sync.Mutex
	queues   map[target]*queue
	runnable []*queue // those with a due batch, in order
	calls    int      // that have not returned
	items    int      // pending
	bytes    int64    // of them
	// occurrences includes what has settled until the ledger has it.
	occurrences int64
	flushing    int // calls of Flush and Close: nothing waits for Options.Delay
	closed      bool
	// changes: something has settled, or a call has returned.
	changes notify.Notifier
}

// target is where a batch is posted.
type target struct {
	api       occurrence.API
	namespace string
}

// New returns a sink. The context's values, such as the logger, are those of its requests; its
// end has no effect. An error is one of the options or of registering metrics.
func New(ctx context.Context, client Client, l *ledger.Ledger, o Options) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("remote sink options: %w", err)
	}
	s := &Sink{client: client, ledger: l, options: o, queues: make(map[target]*queue)}
	s.requests, s.cancel = context.WithCancelCause(context.WithoutCancel(ctx))
	var err error
	s.metrics, err = newMetrics(s, o.Registerer)
	return s, err
}

// Pending returns what is pending. Of a remote sink, a series is an Event to send.
func (s *Sink) Pending() sink.Pending {
	s.mu.Lock()
	defer s.mu.Unlock()
	return sink.Pending{Series: s.items, Occurrences: s.occurrences}
}

// Add adds an occurrence with an Event, which was recorded in the ledger. It calls
// o.Settled if it drops the occurrence or another one in favour of it.
func (s *Sink) Add(o *occurrence.Occurrence) {
	var out []settled
	if reason, err := unsendable(o); reason != occurrence.NoReason {
		s.count(o.Weight)
		out = []settled{{newItem(o), occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}}}
	} else {
		out = s.add(o, o.Series())
	}
	s.settle(out)
}

func (s *Sink) count(weight int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurrences += weight
}

// unsendable returns why an occurrence cannot be sent.
func unsendable(o *occurrence.Occurrence) (occurrence.Reason, error) {
	switch {
	case o.Event == nil || o.Event.Namespace == "":
		return occurrence.Malformed, fmt.Errorf("the Event has no namespace")
	case o.Client != "" || o.Weight < 1 || o.Weight > math.MaxInt32:
		// Its name and its total would have to be those of its client.
		return occurrence.Malformed, fmt.Errorf("a remote sink takes no reports of clients that count by themselves")
	default:
		return occurrence.NoReason, nil
	}
}

func (s *Sink) add(o *occurrence.Occurrence, series occurrence.Digest) (out []settled) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurrences += o.Weight
	if s.closed {
		return []settled{{newItem(o), dropped(occurrence.Shutdown, nil)}}
	}
	to := target{o.API, o.Event.Namespace}
	q := s.queues[to]
	if q == nil {
		q = newQueue(to, s.options.MaxItems)
	}
	if same := q.waiting[series]; same != nil && same.weight+o.Weight <= math.MaxInt32 {
		if more := same.growth(o); more == 0 || s.bytes+more <= s.options.MaxPendingBytes {
			same.merge(o, more)
			s.bytes, q.bytes = s.bytes+more, q.bytes+more
			return nil
		}
	}
	i := newItem(o)
	i.series = series
	out, ok := s.evictFor(q, i)
	if !ok {
		return append(out, settled{i, dropped(occurrence.PendingFull, nil)})
	}
	s.queues[to] = q
	s.items++
	s.bytes += i.bytes
	q.add(i)
	if q.timer == nil || len(q.forming) == 1 || len(q.forming) == q.maxItems {
		s.schedule(q)
	}
	return out
}

// item is an Event to send. It belongs to a queue; the mutex of the sink guards it until it is
// in a call, after which only outcomes change it.
type item struct {
	series occurrence.Digest
	// latest is the newest occurrence, whose Event is shared. Of the first one, only its times
	// are kept.
	latest         *occurrence.Occurrence
	since          time.Time // when the first one was recorded
	firstTimestamp metav1.Time
	eventTime      metav1.MicroTime
	weight         int64
	bytes          int64
	callbacks      []*occurrence.Occurrence // with Settled

	name     string    // from the first attempt on
	inDoubt  bool      // an attempt may have had an effect
	failures int       // of this item, while the rest of its batch succeeded
	retryAt  time.Time // zero until it was refused for now
	err      error     // of the last attempt
	gone     bool      // it is no longer pending
}

// itemBytes is the memory of an item beside its Event, and callbackBytes that of an occurrence
// which is merged into one and has a callback.
const (
	itemBytes     = 512
	callbackBytes = 512
)

func newItem(o *occurrence.Occurrence) *item {
	i := &item{latest: o, since: o.Recorded, weight: o.Weight, bytes: itemBytes}
	if o.Event != nil {
		i.firstTimestamp, i.eventTime = o.Event.FirstTimestamp, o.Event.EventTime
		i.bytes += eventsize.Of(o.Event)
	}
	if o.Settled != nil {
		i.callbacks = []*occurrence.Occurrence{o}
	}
	return i
}

// growth returns by how much the memory grows with an occurrence of the same series.
func (i *item) growth(o *occurrence.Occurrence) int64 {
	more := max(0, eventsize.Of(o.Event)-eventsize.Of(i.latest.Event)) // other annotations
	if o.Settled != nil {
		more += callbackBytes
	}
	return more
}

// merge adds an occurrence of the same series.
func (i *item) merge(o *occurrence.Occurrence, more int64) {
	i.latest, i.weight, i.bytes = o, i.weight+o.Weight, i.bytes+more
	if o.Settled != nil {
		i.callbacks = append(i.callbacks, o)
	}
}

func (i *item) isWarning() bool { return i.latest.Event.Type == corev1.EventTypeWarning }

// settled is an item that has its outcome.
type settled struct {
	item *item
	occurrence.Settlement
}

func dropped(reason occurrence.Reason, err error) occurrence.Settlement {
	return occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}
}

// settle reports outcomes to the ledger, and then to callbacks, which may block.
func (s *Sink) settle(out []settled) {
	if len(out) == 0 {
		return
	}
	s.account(out)
	for _, o := range out {
		o.call()
	}
}

// account reports outcomes to the ledger.
func (s *Sink) account(out []settled) {
	var weight int64
	for _, o := range out {
		whole := *o.item.latest
		whole.Weight = o.item.weight
		s.ledger.Count(&whole, o.Settlement)
		weight += o.item.weight
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.occurrences -= weight
	s.changes.Notify()
}

func (o settled) call() {
	for _, one := range o.item.callbacks {
		one.Settled(o.Settlement)
	}
}
