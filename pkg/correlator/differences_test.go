package correlator_test

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// The tests in this file show the deliberate differences from client-go, on both sides.

func newCorrelator(t *testing.T, o correlator.Options) *correlator.Correlator {
	t.Helper()
	c, err := correlator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// difference is a stream with the results of both correlators.
type difference struct {
	name         string
	setup        func(*setup) // changes the default
	items        []item
	theirs, ours result
	then         func(*testing.T, *downstream, *clientGo)
}

// result is what is stored in the end. Of a number that is 0, nothing is wanted.
type result struct {
	events int
	count  int64
	writes int
}

func (got result) want(t *testing.T, who string, want result) {
	t.Helper()
	if want.events != 0 && got.events != want.events || want.count != got.count || want.writes != 0 && got.writes != want.writes {
		t.Errorf("%s has %+v, want %+v", who, got, want)
	}
}

func (o *outcome) result(events int) result {
	r := result{events: events}
	for p, n := range o.counts {
		r.count += n
		r.writes += o.writes[p]
	}
	return r
}

func (d difference) show(t *testing.T) {
	t.Helper()
	s := stream{setup: defaultSetup(), items: d.items}
	if d.setup != nil {
		d.setup(&s.setup)
	}
	ours, err := run(t, s)
	if err != nil {
		t.Fatal(err)
	}
	theirs, err := upstream(s)
	if err != nil {
		t.Fatal(err)
	}
	theirs.result(len(theirs.objects)).want(t, "client-go", d.theirs)
	ours.result(len(ours.added)).want(t, "eventd", d.ours)
	if d.then != nil {
		d.then(t, ours, theirs)
	}
}

func unlimitedBudget(s *setup) { s.burst = unlimited }

// repeated returns n items, of which each may be changed.
func repeated(n int, gap time.Duration, change func(n int, i *item)) (items []item) {
	for n := range n {
		i := item{gap: gap}
		if change != nil {
			change(n, &i)
		}
		items = append(items, i)
	}
	return items
}

// Difference 3.
func TestRepeatsTakeFewerWrites(t *testing.T) {
	difference{
		setup:  unlimitedBudget,
		items:  repeated(1000, time.Millisecond, nil),
		theirs: result{events: 1, count: 1000, writes: 1000},
		ours:   result{events: 1, count: 1000, writes: 2},
	}.show(t)
}

func TestDifferences(t *testing.T) {
	for _, d := range []difference{{
		name:   "1: a spent budget loses no count",
		items:  repeated(1000, 5*time.Millisecond, nil),
		theirs: result{events: 1, count: 25, writes: 25},
		ours:   result{events: 1, count: 1000, writes: 5},
		then: func(t *testing.T, ours *downstream, _ *clientGo) {
			for digest, last := range ours.last {
				if got := ours.sink.storedAt(digest, last.Add(soon)); got != 1000 {
					t.Errorf("%d are stored %v later", got, soon)
				}
			}
		},
	}, {
		name: "2: a noisy reason leaves tokens for the first of others",
		items: repeated(205, 30*time.Second, func(n int, i *item) {
			if n >= 200 {
				i.gap, i.reason = time.Second, n
			}
		}),
		theirs: result{events: 1, count: 191},
		ours:   result{events: 6, count: 205},
		then: func(t *testing.T, ours *downstream, theirs *clientGo) {
			if n := len(theirs.refused); n != 6 {
				t.Errorf("client-go has refused occurrences of %d reasons", n)
			}
			for _, w := range ours.sink.writes {
				if w.Reason == correlator.NewSeries && w.Delay != 0 {
					t.Errorf("a rare reason waits: %+v", w.Decision)
				}
			}
		},
	}, {
		// client-go evicts the first messages one after the other, at random.
		name:   "4: the first messages keep their Events",
		setup:  unlimitedBudget,
		items:  repeated(800, time.Second, func(n int, i *item) { i.message = n % 40 }),
		theirs: result{count: 800},
		ours:   result{events: 10, count: 800},
		then: func(t *testing.T, ours *downstream, theirs *clientGo) {
			if n := len(theirs.objects); n <= 10 {
				t.Errorf("client-go: %d Events", n)
			}
			for p, n := range ours.counts {
				if want := map[bool]int64{false: 20, true: 31 * 20}[p.combined()]; n != want {
					t.Errorf("%d are counted on %v, want %d", n, p, want)
				}
			}
		},
	}, {
		name:   "6: reporters have Events and budgets of their own",
		setup:  func(s *setup) { s.burst = 1 },
		items:  []item{{gap: 1, reporter: 1}, {gap: 1, reporter: 2}},
		theirs: result{events: 1, count: 1},
		ours:   result{events: 2, count: 2},
		then: func(t *testing.T, ours *downstream, _ *clientGo) {
			for _, w := range ours.sink.writes {
				if w.Delay != 0 {
					t.Errorf("one reporter waits for the other's budget: %+v", w.Decision)
				}
			}
		},
	}, {
		name:   "7: the messages of one container do not count for another of the pod",
		setup:  unlimitedBudget,
		items:  repeated(12, time.Second, func(n int, i *item) { i.field, i.message = 1+n%2, n }),
		theirs: result{count: 12},
		ours:   result{events: 12, count: 12},
		then: func(t *testing.T, _ *downstream, theirs *clientGo) {
			for p := range theirs.counts {
				if p.combined() {
					return
				}
			}
			t.Error("client-go combines none")
		},
	}, {
		name: "8: an evicted series continues its Event",
		setup: func(s *setup) {
			s.cacheSize, s.burst = 1, unlimited
		},
		items:  repeated(20, time.Second, func(n int, i *item) { i.object = n % 2 }),
		theirs: result{events: 20, count: 20},
		ours:   result{events: 2, count: 20},
	}} {
		t.Run(d.name, d.show)
	}
}

// Difference 5: client-go's aggregator copies only a few fields to a new Event.
func TestCombinedEventKeepsWhatClientGoLoses(t *testing.T) {
	s := defaultSetup()
	s.maxMessages = 1
	event := item{reporter: 1}.event(0, beginning, false)
	event.Annotations = map[string]string{"a": "b"}
	event.Labels = map[string]string{"c": "d"}
	event.Action = "Acting"
	event.Related = &corev1.ObjectReference{Name: "other"}

	theirs := record.NewEventCorrelatorWithOptions(s.clientGo(clocktesting.NewFakePassiveClock(beginning)))
	result, err := theirs.EventCorrelate(event)
	if err != nil {
		t.Fatal(err)
	}
	if e := result.Event; len(e.Annotations) > 0 || len(e.Labels) > 0 || e.Action != "" || e.Related != nil || e.ReportingController != "" {
		t.Errorf("client-go keeps %+v", e)
	}
	ours := newCorrelator(t, s.ours())
	got := ours.Correlate(&occurrence.Occurrence{Event: event, Weight: 1}, beginning).Target.Event.DeepCopy()
	if got.Message != result.Event.Message {
		t.Errorf("message %q, client-go's is %q", got.Message, result.Event.Message)
	}
	got.Message = event.Message
	if got.String() != event.String() {
		t.Errorf("of\n%v\nis kept\n%v", event, got)
	}
}

// Difference 6, for keys: client-go joins fields without a separator.
func TestFieldsAreNotJoined(t *testing.T) {
	for name, change := range map[string]func(a, b *corev1.Event){
		"reason and message": func(a, b *corev1.Event) {
			a.Reason, a.Message = "Back", "OffBack"
			b.Reason, b.Message = "BackOff", "Back"
		},
		"name and fieldPath": func(a, b *corev1.Event) {
			a.InvolvedObject.Name, a.InvolvedObject.FieldPath = "web", "-0"
			b.InvolvedObject.Name, b.InvolvedObject.FieldPath = "web-0", ""
		},
		"source and kind": func(a, b *corev1.Event) {
			a.Source.Component, a.InvolvedObject.Kind = "kubelet", "Pod"
			b.Source.Component, b.InvolvedObject.Kind = "kube", "letPod"
		},
	} {
		ours, theirs := newDownstream(t, defaultSetup()), newClientGo(defaultSetup())
		a, b := item{}.event(0, beginning, false), item{}.event(1, beginning, false)
		change(a, b)
		for _, event := range []*corev1.Event{a, b} {
			if err := ours.record(event, beginning); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := theirs.record(event, beginning); (err != nil) != (event == b) {
				t.Errorf("%s: client-go tells them apart, %v", name, err)
			}
		}
		if n := len(ours.added); n != 2 {
			t.Errorf("%s: %d Events", name, n)
		}
	}
}

// Difference 7 for new-style Events is shown by TestIdentityFields (internal/identity), and
// difference 9 by TestSubjectHasABoundedNumberOfPendingSeries.

// clientGo is client-go's correlator with a store. Its results are applied as client-go's
// broadcaster does (recordToSink in tools/record), with an apiserver that never fails.
type clientGo struct {
	setup      setup
	clock      *clocktesting.FakePassiveClock
	correlator *record.EventCorrelator
	combined   bool // the last Event was combined

	objects map[string]*corev1.Event // by name
	places  map[string]place
	*outcome
}

func newClientGo(s setup) *clientGo {
	c := &clientGo{
		setup: s, clock: clocktesting.NewFakePassiveClock(beginning),
		objects: map[string]*corev1.Event{}, places: map[string]place{}, outcome: newOutcome(),
	}
	o := s.clientGo(c.clock)
	message := o.MessageFunc
	if message == nil {
		message = record.EventAggregatorByReasonMessageFunc
	}
	o.MessageFunc = func(e *corev1.Event) string {
		c.combined = true
		return message(e)
	}
	c.correlator = record.NewEventCorrelatorWithOptions(o)
	return c
}

// record does what recordToSink and recordEvent do.
func (c *clientGo) record(event *corev1.Event, now time.Time) error {
	c.clock.SetTime(now)
	c.combined = false
	result, err := c.correlator.EventCorrelate(event)
	if err != nil {
		return err
	}
	p := placeOf(c.setup.keys, event, c.combined)
	if result.Skip {
		c.refused[p.group]++
		return nil
	}
	stored, err := c.write(result, p)
	if err != nil {
		return err
	}
	c.writes[p]++
	c.subjectWrites[c.setup.keys.clientGoSubject(event)]++
	c.correlator.UpdateState(stored)
	return nil
}

func (c *clientGo) write(result *record.EventCorrelateResult, p place) (*corev1.Event, error) {
	event := result.Event
	if stored := c.objects[event.Name]; event.Count > 1 && stored != nil {
		before := stored.Count
		if err := json.Unmarshal(result.Patch, stored); err != nil {
			return nil, err
		}
		if c.places[event.Name] != p {
			return nil, fmt.Errorf("client-go counts %v on the Event of %v", p, c.places[event.Name])
		}
		c.counts[p] += int64(stored.Count - before)
		return stored.DeepCopy(), nil
	}
	if c.objects[event.Name] != nil {
		return nil, fmt.Errorf("client-go creates a second Event named %s", event.Name)
	}
	c.objects[event.Name], c.places[event.Name] = event.DeepCopy(), p
	c.counts[p] += int64(event.Count)
	return event.DeepCopy(), nil
}

// upstream runs a stream through client-go's correlator.
func upstream(s stream) (*clientGo, error) {
	c := newClientGo(s.setup)
	var failed error
	s.each(func(n int, event *corev1.Event, now time.Time) {
		if err := c.record(event, now); err != nil && failed == nil {
			failed = fmt.Errorf("item %d: %w", n, err)
		}
	})
	return c, failed
}
