package correlator_test

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// The tests in this file show the deliberate differences from client-go, on both sides.

// pair has both correlators, at the same time.
type pair struct {
	t      *testing.T
	ours   *downstream
	theirs *clientGo
	now    time.Time
	items  int
}

func newPair(t *testing.T, s setup) *pair {
	t.Helper()
	ours, err := newDownstream(s)
	if err != nil {
		t.Fatal(err)
	}
	return &pair{t: t, ours: ours, theirs: newClientGo(s), now: beginning}
}

// happen correlates the same item with both, several times.
func (p *pair) happen(times int, i item) {
	p.t.Helper()
	for range times {
		p.now = p.now.Add(i.gap)
		event := i.event(p.items, p.now, false)
		p.items++
		if err := p.ours.record(event, p.now); err != nil {
			p.t.Fatal(err)
		}
		if err := p.theirs.record(event, p.now); err != nil {
			p.t.Fatal(err)
		}
	}
}

// finish makes all pending writes.
func (p *pair) finish() {
	p.t.Helper()
	p.ours.sink.finish()
	if err := p.ours.tally(); err != nil {
		p.t.Fatal(err)
	}
}

// sum sums over all Events.
func sum(o *outcome) (events int, count int64, writes int) {
	for p, n := range o.counts {
		events++
		count += n
		writes += o.writes[p]
	}
	return events, count, writes
}

// wantSum fails unless the numbers of Events and of occurrences are as wanted.
func wantSum(t *testing.T, who string, o *outcome, wantEvents int, wantCount int64) {
	t.Helper()
	if events, count, writes := sum(o); events != wantEvents || count != wantCount {
		t.Errorf("%s: %d Events with %d occurrences in %d writes, want %d with %d", who, events, count, writes, wantEvents, wantCount)
	}
}

// Difference 1, with a storm.
func TestSpentBudgetLosesNoCount(t *testing.T) {
	p := newPair(t, defaultSetup())
	p.happen(1000, item{gap: 5 * time.Millisecond})
	last := p.now
	p.finish()
	wantSum(t, "client-go", p.theirs.outcome, 1, 25)
	wantSum(t, "eventd", p.ours.outcome, 1, 1000)
	for digest := range p.ours.added {
		if got := p.ours.sink.storedAt(digest, last.Add(soon)); got != 1000 {
			t.Errorf("%d are stored %v later", got, soon)
		}
	}
	if _, _, writes := sum(p.ours.outcome); writes > 25 {
		t.Errorf("%d writes", writes)
	}
}

// Difference 2, with a reason that uses every token for repeats.
func TestNoisyReasonLeavesTokensForTheFirstOfOthers(t *testing.T) {
	p := newPair(t, defaultSetup())
	p.happen(200, item{gap: 30 * time.Second})
	rare := item{gap: time.Second, reason: 1}
	for reason := 1; reason <= 5; reason++ {
		rare.reason = reason
		p.happen(1, rare)
		group, _ := p.ours.setup.keys.clientGoGroup(rare.event(0, p.now, false))
		if p.theirs.refused[group] != 1 {
			t.Errorf("reason %d: client-go has refused %d", reason, p.theirs.refused[group])
		}
	}
	for _, w := range p.ours.sink.writes[len(p.ours.sink.writes)-5:] {
		if w.Reason != correlator.NewSeries || w.Delay != 0 {
			t.Errorf("a rare reason waits: %+v", w.Decision)
		}
	}
}

// Difference 3, with tokens for everything.
func TestRepeatsTakeFewerWrites(t *testing.T) {
	s := defaultSetup()
	s.burst = unlimited
	p := newPair(t, s)
	p.happen(1000, item{gap: time.Millisecond})
	p.finish()
	wantSum(t, "client-go", p.theirs.outcome, 1, 1000)
	wantSum(t, "eventd", p.ours.outcome, 1, 1000)
	if _, _, writes := sum(p.theirs.outcome); writes != 1000 {
		t.Errorf("client-go makes %d writes", writes)
	}
	if _, _, writes := sum(p.ours.outcome); writes != 2 {
		t.Errorf("eventd makes %d writes", writes)
	}
}

// Difference 4: client-go evicts the first messages one after the other.
func TestFirstMessagesKeepTheirEvents(t *testing.T) {
	s := defaultSetup()
	s.burst = unlimited
	p := newPair(t, s)
	for range 20 {
		for message := range 40 {
			p.happen(1, item{gap: time.Second, message: message})
		}
	}
	p.finish()
	wantSum(t, "eventd", p.ours.outcome, 10, 800)
	if events, count, _ := sum(p.theirs.outcome); events <= 10 || count != 800 {
		t.Errorf("client-go: %d Events with %d occurrences", events, count)
	}
	for p, n := range p.ours.counts {
		if want := map[bool]int64{false: 20, true: 31 * 20}[p.combined()]; n != want {
			t.Errorf("%d are counted on %v, want %d", n, p, want)
		}
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
	ours, err := correlator.New(s.ours())
	if err != nil {
		t.Fatal(err)
	}
	got := ours.Correlate(&occurrence.Occurrence{Event: event, Weight: 1}, beginning).Target.Event
	if got.Message != result.Event.Message {
		t.Errorf("message %q, client-go's is %q", got.Message, result.Event.Message)
	}
	got = got.DeepCopy()
	got.Message = event.Message
	if got.String() != event.String() {
		t.Errorf("of\n%v\nis kept\n%v", event, got)
	}
}

// Difference 6, for reporters.
func TestReportersHaveEventsAndBudgetsOfTheirOwn(t *testing.T) {
	s := defaultSetup()
	s.burst = 1
	p := newPair(t, s)
	p.happen(1, item{gap: 1, reporter: 1})
	p.happen(1, item{gap: 1, reporter: 2})
	p.finish()
	wantSum(t, "client-go", p.theirs.outcome, 1, 1)
	if n := len(p.ours.added); n != 2 {
		t.Errorf("%d Events", n)
	}
	for _, w := range p.ours.sink.writes {
		if w.Delay != 0 {
			t.Errorf("one reporter waits for the other's budget: %+v", w.Decision)
		}
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
		p := newPair(t, defaultSetup())
		a, b := item{}.event(0, p.now, false), item{}.event(1, p.now, false)
		change(a, b)
		if err := p.theirs.record(a, p.now); err != nil {
			t.Fatal(err)
		}
		if err := p.theirs.record(b, p.now); err == nil {
			t.Errorf("%s: client-go tells them apart", name)
		}
		for _, event := range []*corev1.Event{a, b} {
			if err := p.ours.record(event, p.now); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if n := len(p.ours.added); n != 2 {
			t.Errorf("%s: %d Events", name, n)
		}
	}
}

// Difference 7: the messages of one container do not count for another of the pod.
func TestGroupsAreOfOneFieldPath(t *testing.T) {
	s := defaultSetup()
	s.burst = unlimited
	p := newPair(t, s)
	for message := range 12 {
		p.happen(1, item{gap: time.Second, field: 1 + message%2, message: message})
	}
	p.finish()
	if wantSum(t, "eventd", p.ours.outcome, 12, 12); p.theirs.counts[p.anyGroup()] == 0 {
		t.Error("client-go combines none")
	}
}

// anyGroup returns the combined Event of the only group.
func (p *pair) anyGroup() place {
	for at := range p.ours.counts {
		return place{group: at.group}
	}
	p.t.Fatal("nothing is counted")
	return place{}
}

// Difference 7, for new-style Events, which client-go's tools/events does not group.
func TestGroupsAreOfOneActionAndRelatedObject(t *testing.T) {
	for name, change := range map[string]func(e *corev1.Event, odd int){
		"action":  func(e *corev1.Event, odd int) { e.Action = fmt.Sprint("Acting", odd) },
		"related": func(e *corev1.Event, odd int) { e.Related = &corev1.ObjectReference{Name: fmt.Sprint("node-", odd)} },
	} {
		c, err := correlator.New(correlator.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		combined := 0
		for message := range 20 {
			event := item{message: message}.event(message, beginning, true)
			event.EventTime = metav1.NewMicroTime(beginning)
			change(event, message%2)
			if c.Correlate(&occurrence.Occurrence{Event: event, Weight: 1}, beginning).Reason == correlator.Combined {
				combined++
			}
		}
		if combined != 2 { // the tenth of each
			t.Errorf("%s: %d are combined", name, combined)
		}
	}
}

// Difference 8: an evicted series continues its Event.
func TestCountsGoOnAfterEvictions(t *testing.T) {
	s := defaultSetup()
	s.cacheSize, s.burst = 1, unlimited
	p := newPair(t, s)
	for range 10 {
		p.happen(1, item{gap: time.Second})
		p.happen(1, item{gap: time.Second, object: 1})
	}
	p.finish()
	if n := len(p.theirs.objects); n != 20 {
		t.Errorf("client-go makes %d Events", n)
	}
	if n := len(p.ours.added); n != 2 {
		t.Errorf("eventd makes %d Events", n)
	}
	wantSum(t, "eventd", p.ours.outcome, 2, 20)
}

// Difference 9: drops are reported, and everything else is stored.
func TestSubjectOwesNoMoreThanItMay(t *testing.T) {
	s := defaultSetup()
	s.burst = 2
	o := s.ours()
	const maxSeries = 3
	o.MaxSeries = maxSeries
	c, err := correlator.New(o)
	if err != nil {
		t.Fatal(err)
	}
	sink := newSimulation(0)
	now, dropped := beginning, int64(0)
	const happened = 200
	for n := range happened {
		now = now.Add(time.Second)
		sink.advance(now)
		event := item{reason: n % 7}.event(n, now, false)
		o := &occurrence.Occurrence{Event: event, Weight: 1}
		d := c.Correlate(o, now)
		if (d.Drop == occurrence.BudgetSpent) != (d.Reason == correlator.BudgetSpent) {
			t.Errorf("item %d: %+v", n, d)
		}
		if d.Drop != occurrence.NoReason {
			dropped++
		}
		if sink.add(o, latest{Decision: d}); len(sink.series) > maxSeries {
			t.Errorf("item %d: %d series are pending", n, len(sink.series))
		}
	}
	sink.finish()
	var stored int64
	for _, n := range sink.stored {
		stored += n
	}
	if stored+dropped != happened || dropped == 0 {
		t.Errorf("%d stored, %d dropped of %d", stored, dropped, happened)
	}
}
