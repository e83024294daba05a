package correlator

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/violations"
)

// MaxHeartbeat is the upper bound of Options.Heartbeat.
const MaxHeartbeat = 24 * time.Hour

// Options of a correlator. The functions must not change their Event. If one panics, the
// default is used for that Event.
type Options struct {
	// CacheSize is the maximum number of subjects in memory. One with several series or groups counts as as many.
	CacheSize int
	// MaxSeries is the maximum number of series, and of groups, of one subject in
	// memory, and of its series that wait for the budget.
	MaxSeries int

	// Burst and QPS are the size and the refill rate of each subject's token bucket,
	// in writes and writes per second. A QPS of 1e9 or more, as math.Inf(1), means
	// no limit.
	Burst int
	QPS   float64

	// MaxMessages is the number of different messages of a group from which on they
	// are combined: the MaxMessages-th and all further ones.
	MaxMessages int
	// Interval is how long a group must be quiet until its messages are no longer
	// combined.
	Interval time.Duration

	// Heartbeat is the maximum delay of a write while the subject has tokens. It is
	// at most MaxHeartbeat.
	Heartbeat time.Duration

	// SubjectKey, if not nil, returns the key of the Events that share a budget. By
	// default they have the same source, reporting controller and instance,
	// involved object, type and namespace. Different users never share one. It is
	// client-go's CorrelatorOptions.SpamKeyFunc.
	SubjectKey func(*corev1.Event) string
	// GroupKey, if not nil, returns the key of the Events that form a group, and
	// within the group that of the Events with the same message. By default, a
	// group has Events that differ only in the message. It is client-go's
	// CorrelatorOptions.KeyFunc.
	GroupKey func(*corev1.Event) (group, member string)
	// Message, if not nil, returns the message of a combined Event. By default it is
	// that of the last Event, after "(combined from similar events): ". It is
	// client-go's CorrelatorOptions.MessageFunc.
	Message func(*corev1.Event) string

	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
}

// DefaultOptions returns the defaults of client-go, where it has them. A correlator takes
// about 1 MiB.
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

// Validate returns an error that names every invalid field.
func (o *Options) Validate() error {
	var v violations.List
	positive := func(field string, ok bool, value any) {
		v.AddIf(!ok, "%s must be greater than 0, not %v", field, value)
	}
	positive("CacheSize", o.CacheSize > 0, o.CacheSize)
	positive("MaxSeries", o.MaxSeries > 0, o.MaxSeries)
	positive("Burst", o.Burst > 0, o.Burst)
	positive("QPS", o.QPS > 0, o.QPS)
	positive("MaxMessages", o.MaxMessages > 0, o.MaxMessages)
	positive("Interval", o.Interval > 0, o.Interval)
	positive("Heartbeat", o.Heartbeat > 0, o.Heartbeat)
	v.AddIf(o.Heartbeat > MaxHeartbeat, "Heartbeat must be at most %v, not %v", MaxHeartbeat, o.Heartbeat)
	return v.Err()
}

// subjectKey calls SubjectKey. It returns false if that is nil or panics.
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

// groupKey calls GroupKey. It returns false if that is nil or panics.
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

// message returns the message of a combined Event.
func (o *Options) message(event *corev1.Event) (message string) {
	message = identity.CombinedPrefix + event.Message
	if o.Message == nil {
		return message
	}
	defer func() { _ = recover() }()
	return o.Message(event)
}
