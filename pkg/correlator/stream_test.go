package correlator_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
)

// beginning is the time at which every stream begins.
var beginning = time.Unix(1_700_000_000, 0)

// item is one occurrence, a gap after the one before. Numbers stand for names.
type item struct {
	gap      time.Duration
	object   int
	field    int // of the object; 0: none
	source   int
	reporter int // controller and instance; 0: none
	warning  bool
	reason   int
	message  int
}

// event returns the Event that a recorder builds of the n-th item of a stream.
func (i item) event(n int, at time.Time, newStyle bool) *corev1.Event {
	object := "web-" + strconv.Itoa(i.object)
	e := &corev1.Event{
		// client-go's names come from the clock; these are as distinct.
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: object + "." + strconv.Itoa(n)},
		InvolvedObject: corev1.ObjectReference{
			Kind: "Pod", Namespace: "ns", Name: object, UID: types.UID("uid-" + object), APIVersion: "v1",
		},
		Source:  corev1.EventSource{Component: "source-" + strconv.Itoa(i.source)},
		Type:    corev1.EventTypeNormal,
		Reason:  "Reason" + strconv.Itoa(i.reason),
		Message: "part " + strconv.Itoa(i.message%4) + ": " + strconv.Itoa(i.message),
	}
	if i.warning {
		e.Type = corev1.EventTypeWarning
	}
	if i.field > 0 {
		e.InvolvedObject.FieldPath = "spec.containers{" + strconv.Itoa(i.field) + "}"
	}
	if i.reporter > 0 {
		e.ReportingController, e.ReportingInstance = "reporter", "reporter-"+strconv.Itoa(i.reporter)
	}
	if newStyle {
		e.EventTime = metav1.NewMicroTime(at)
		e.Action = "Acting"
		return e
	}
	e.Count, e.FirstTimestamp, e.LastTimestamp = 1, metav1.NewTime(at), metav1.NewTime(at)
	return e
}

// stream has the items and the options of a comparison.
type stream struct {
	seed  uint64
	setup setup
	items []item
}

// each calls f with every item's Event and time, in order.
func (s stream) each(f func(n int, event *corev1.Event, now time.Time)) {
	now := beginning
	for n, i := range s.items {
		now = now.Add(i.gap)
		f(n, i.event(n, now, s.setup.newStyle), now)
	}
}

// generate draws a stream. A few phases follow each other, each with its own
// population and its own scale of gaps, from microseconds to an hour.
func generate(seed uint64) stream {
	rng := rand.New(rand.NewPCG(seed, 1))
	s := stream{seed: seed, setup: drawSetup(rng)}
	fields, reporters := 1, 1
	if rng.IntN(4) == 0 {
		fields = 3
	}
	if rng.IntN(4) == 0 {
		reporters = 3
	}
	for range 1 + rng.IntN(4) {
		p := phase{
			scale:   math.Pow(10, 3+9.6*rng.Float64()),
			objects: 1 + rng.IntN(3), sources: 1 + rng.IntN(2), reasons: 1 + rng.IntN(3),
			fields: fields, reporters: reporters,
			messages: []int{1, 2, 4, 12, 30}[rng.IntN(5)],
			warnings: rng.IntN(3) == 0,
		}
		length := 5 + rng.IntN(60)
		if rng.IntN(10) == 0 {
			length *= 8
		}
		for range length {
			s.items = append(s.items, p.draw(rng))
		}
	}
	return s
}

// phase is a part of a stream.
type phase struct {
	scale                                                  float64 // nanoseconds
	objects, sources, reasons, fields, reporters, messages int
	warnings                                               bool
}

// edges are gaps at which a decision changes.
var edges = []time.Duration{time.Second, 2 * time.Second, 25 * time.Second, 300 * time.Second, 600 * time.Second, 600*time.Second + 1}

func (p phase) draw(rng *rand.Rand) item {
	i := item{
		gap:    1 + time.Duration(2*p.scale*rng.Float64()),
		object: rng.IntN(p.objects), source: rng.IntN(p.sources), reason: rng.IntN(p.reasons),
		field: rng.IntN(p.fields), reporter: rng.IntN(p.reporters), message: rng.IntN(p.messages),
		warning: p.warnings && rng.IntN(2) == 0,
	}
	if rng.IntN(20) == 0 {
		i.gap = edges[rng.IntN(len(edges))]
	}
	return i
}

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
