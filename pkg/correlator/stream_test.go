package correlator_test

import (
	"math"
	"math/rand/v2"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
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
