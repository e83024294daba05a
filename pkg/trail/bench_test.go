package trail

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// What an occurrence costs from the correlator to its outcome.
//
//	go test ./pkg/trail -run - -bench .
func BenchmarkTrail(b *testing.B) {
	repeat := correlator.Decision{Reason: correlator.Repeat, Delay: time.Minute, Deferred: correlator.Spaced}
	for _, c := range []struct {
		name   string
		series int
		d      correlator.Decision
	}{
		{"repeats of one series", 1, repeat},
		{"repeats of 1,000 series", 1000, repeat},
		{"new series, and evictions", 1 << 20, correlator.Decision{}},
	} {
		var events []*corev1.Event
		var occurrences []*occurrence.Occurrence
		for i := range min(c.series, 100_000) {
			e := event(fmt.Sprint("ns-", i%20), fmt.Sprint("web-", i), "BackOff", "Back-off restarting failed container app in pod")
			events = append(events, e)
			occurrences = append(occurrences, &occurrence.Occurrence{Event: e, User: "system:node:one", Weight: 1})
		}
		b.Run(c.name+"/decided", func(b *testing.B) {
			b.ReportAllocs()
			to := newTrail(b, Options{})
			for i := 0; b.Loop(); i++ {
				n := i % len(events)
				d := c.d
				d.Target.Event = events[n]
				to.Decided(occurrences[n], d)
			}
		})
		b.Run(c.name+"/settled", func(b *testing.B) {
			b.ReportAllocs()
			to := newTrail(b, Options{})
			for i := 0; b.Loop(); i++ {
				p := sink.Part{Event: events[i%len(events)], User: "system:node:one", Weight: 1, Writes: 1}
				to.Settled(p, occurrence.Settlement{Outcome: occurrence.Merged})
			}
		})
	}
}

// How long a query keeps the stations waiting, of a trail that is full.
func BenchmarkQuery(b *testing.B) {
	to := newTrail(b, Options{})
	for i := range 20_000 {
		e := event(fmt.Sprint("ns-", i%20), fmt.Sprint("web-", i), "BackOff", "message")
		record(to, e, "jane", 1)
		drop(to, e, "jane", occurrence.Invalid)
	}
	for name, query := range map[string]func(){
		"why":   func() { to.Why(Query{Object: Object{Name: "web-19999"}}) },
		"drops": func() { to.Drops(Query{Limit: 5000}) },
		"top":   func() { to.Top(TopQuery{}) },
		"all":   func() { to.Why(Query{Object: Object{Kind: "Pod"}, Limit: 5000}) },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				query()
			}
		})
	}
}
