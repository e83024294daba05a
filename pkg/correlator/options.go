package correlator

import (
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
)

// MaxHeartbeat is the longest: an Event lives for an hour unless its apiserver says
// otherwise.
const MaxHeartbeat = 24 * time.Hour

// Options of a correlator. The functions must not change the Event that they
// are given; one that panics is taken for one that was not set.
type Options struct {
	// CacheSize is the number of subjects that are remembered.
	CacheSize int
	// MaxSeries is the number of series, and of groups, that are remembered of
	// one subject, and how many of them may wait for its budget.
	MaxSeries int

	// Burst and QPS are the budget of each subject: writes at once, and writes
	// per second. A billion per second or more, or math.Inf(1), is no limit.
	Burst int
	QPS   float64

	// MaxMessages is the number of different messages of a group at which
	// combining begins: this one, and every further one, is counted on the
	// group's combined Event.
	MaxMessages int
	// Interval is how long a group must be quiet to start over.
	Interval time.Duration

	// Heartbeat is how long the writes of a series are put off at most while
	// its subject has budget.
	Heartbeat time.Duration

	// SubjectKey, if not nil, says which Events share a budget. By default it is
	// those of one source about one object, and of one type. Those that different
	// users report through an intake do not share one in any case.
	SubjectKey func(*corev1.Event) string
	// GroupKey, if not nil, says which Events are similar, those with one group,
	// and which of them are the same, those with one member. By default those
	// are similar that differ by their message only.
	GroupKey func(*corev1.Event) (group, member string)
	// Message, if not nil, makes the message of a combined Event.
	Message func(*corev1.Event) string

	// Registerer takes the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns client-go's defaults, where client-go has them. A
// correlator with them takes less than 2 MiB when each subject has one series,
// and up to 65 MiB when each has as many series and groups as it may have.
func DefaultOptions() Options {
	return Options{
		CacheSize:   4096,
		MaxSeries:   64,
		Burst:       25,
		QPS:         1. / 300,
		MaxMessages: 10,
		Interval:    10 * time.Minute,
		Heartbeat:   25 * time.Second,
	}
}

// Validate says what is wrong with the options, or nil.
func (o *Options) Validate() error {
	var errs []error
	positive := func(name string, ok bool, value any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be greater than 0, not %v", name, value))
		}
	}
	positive("cache size", o.CacheSize > 0, o.CacheSize)
	positive("series per subject", o.MaxSeries > 0, o.MaxSeries)
	positive("burst", o.Burst > 0, o.Burst)
	positive("QPS", o.QPS > 0, o.QPS)
	positive("messages of a group", o.MaxMessages > 0, o.MaxMessages)
	positive("interval", o.Interval > 0, o.Interval)
	positive("heartbeat", o.Heartbeat > 0, o.Heartbeat)
	if o.Heartbeat > MaxHeartbeat {
		errs = append(errs, fmt.Errorf("heartbeat must be at most %v, not %v", MaxHeartbeat, o.Heartbeat))
	}
	return errors.Join(errs...)
}

// subjectKey is SubjectKey, and whether there is a key.
func (o *Options) subjectKey(event *corev1.Event) (key string, ok bool) {
	if o.SubjectKey == nil {
		return "", false
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	return o.SubjectKey(event), true
}

// groupKey is GroupKey, and whether there is a key.
func (o *Options) groupKey(event *corev1.Event) (group, member string, ok bool) {
	if o.GroupKey == nil {
		return "", "", false
	}
	defer func() {
		if recover() != nil {
			ok = false
		}
	}()
	group, member = o.GroupKey(event)
	return group, member, true
}

// message is that of a combined Event.
func (o *Options) message(event *corev1.Event) (message string) {
	message = identity.CombinedPrefix + event.Message
	if o.Message == nil {
		return message
	}
	defer func() { _ = recover() }()
	return o.Message(event)
}
