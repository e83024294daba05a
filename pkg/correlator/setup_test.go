package correlator_test

import (
	"math/rand/v2"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
)

// unlimited is the burst of a bucket that no stream empties.
const unlimited = 1 << 20

// setup has the options of both correlators.
type setup struct {
	burst       int
	qps         float32 // as in client-go, so that both mean the same number
	maxMessages int
	interval    time.Duration // whole seconds
	cacheSize   int
	keys        keys
	newStyle    bool          // then there is no comparison with client-go
	latency     time.Duration // of our sink's writes
}

func defaultSetup() setup {
	return setup{burst: 25, qps: 1. / 300, maxMessages: 10, interval: 10 * time.Minute, cacheSize: 4096}
}

// drawSetup draws the options. A third of the streams has the default budget, and a third
// has no limit.
func drawSetup(rng *rand.Rand) setup {
	s := defaultSetup()
	switch rng.IntN(3) {
	case 0:
	case 1:
		s.burst = unlimited
	default:
		s.burst = 1 + rng.IntN(30)
		s.qps = []float32{1. / 3600, 1. / 300, 1. / 10, 1, 20}[rng.IntN(5)]
	}
	if rng.IntN(2) == 0 {
		s.maxMessages = 2 + rng.IntN(20)
	}
	if rng.IntN(2) == 0 {
		s.interval = time.Duration(1+rng.IntN(1200)) * time.Second
	}
	if rng.IntN(5) == 0 {
		s.cacheSize = 1 + rng.IntN(4)
	}
	if rng.IntN(3) == 0 {
		s.keys = customKeys[rng.IntN(len(customKeys))]
	}
	if rng.IntN(3) == 0 {
		s.latency = time.Duration(rng.Int64N(int64(5 * time.Second)))
	}
	s.newStyle = rng.IntN(10) == 0
	return s
}

// evicts reports whether subjects may be evicted.
func (s setup) evicts() bool { return s.cacheSize < 100 }

// ours returns the options of our correlator.
func (s setup) ours() correlator.Options {
	o := correlator.DefaultOptions()
	o.Burst, o.QPS = s.burst, float64(s.qps)
	o.MaxMessages, o.Interval, o.CacheSize = s.maxMessages, s.interval, s.cacheSize
	o.MaxSeries = 1000 // more than any stream has; the limit has its own tests
	o.SubjectKey, o.GroupKey, o.Message = s.keys.subject, s.keys.group, s.keys.message
	return o
}

// clientGo returns the options of client-go's.
func (s setup) clientGo(clock clock.PassiveClock) record.CorrelatorOptions {
	return record.CorrelatorOptions{
		LRUCacheSize: s.cacheSize, BurstSize: s.burst, QPS: s.qps,
		MaxEvents: s.maxMessages, MaxIntervalInSeconds: int(s.interval / time.Second),
		KeyFunc: s.keys.group, MessageFunc: s.keys.message, SpamKeyFunc: s.keys.subject,
		Clock: clock,
	}
}

// keys are the custom functions of both; nil means the default.
type keys struct {
	name    string
	subject func(*corev1.Event) string
	group   func(*corev1.Event) (group, member string)
	message func(*corev1.Event) string
}

// join returns a key that cannot collide: no field of a stream has the separator.
func join(fields ...string) string { return strings.Join(fields, "|") }

var customKeys = []keys{
	{name: "members by the part before the colon", group: func(e *corev1.Event) (string, string) {
		part, _, _ := strings.Cut(e.Message, ":")
		return join(e.Source.Component, e.InvolvedObject.Name, e.Type, e.Reason), part
	}},
	{name: "groups over all reasons", group: func(e *corev1.Event) (string, string) {
		return join(e.Source.Component, e.InvolvedObject.Name, e.Type), e.Reason + e.Message
	}},
	{name: "groups over all objects", group: func(e *corev1.Event) (string, string) {
		return join(e.Source.Component, e.Type, e.Reason), e.Message
	}},
	{name: "one budget per source", subject: func(e *corev1.Event) string { return e.Source.Component }},
	{name: "one budget per reason", subject: func(e *corev1.Event) string {
		return join(e.Source.Component, e.InvolvedObject.Name, e.Type, e.Reason)
	}},
	{name: "one message for all", message: func(*corev1.Event) string { return "many things happened" }},
}

// The keys below are those of client-go: for counting, aggregation and the budget.

func (k keys) clientGoSeries(e *corev1.Event) string {
	o := &e.InvolvedObject
	return join(e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, o.FieldPath, string(o.UID), o.APIVersion,
		e.Type, e.Reason, e.Message)
}

func (k keys) clientGoGroup(e *corev1.Event) (group, member string) {
	if k.group != nil {
		return k.group(e)
	}
	o := &e.InvolvedObject
	return join(e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion,
		e.Type, e.Reason, e.ReportingController, e.ReportingInstance), e.Message
}

func (k keys) clientGoSubject(e *corev1.Event) string {
	if k.subject != nil {
		return k.subject(e)
	}
	o := &e.InvolvedObject
	return join(e.Source.Component, e.Source.Host, o.Kind, o.Namespace, o.Name, string(o.UID), o.APIVersion, e.Type)
}

// The keys below are ours, with the differences 6 and 7.

func (k keys) ourGroup(e *corev1.Event) (group, member string) {
	group, member = k.clientGoGroup(e)
	if k.group != nil {
		return join(group, e.Source.Component, e.Source.Host, e.ReportingController, e.ReportingInstance), member
	}
	return join(group, e.Namespace, e.InvolvedObject.FieldPath), member
}

func (k keys) ourSubject(e *corev1.Event) string {
	if k.subject != nil {
		return k.subject(e)
	}
	return join(k.clientGoSubject(e), e.ReportingController, e.ReportingInstance, e.Namespace)
}

func (k keys) combinedMessage(e *corev1.Event) string {
	if k.message != nil {
		return k.message(e)
	}
	return identity.CombinedPrefix + e.Message
}
