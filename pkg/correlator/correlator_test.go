package correlator

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

func about(object, reason, message string) *corev1.Event {
	e := &corev1.Event{
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Pod", Namespace: "default", Name: object,
			UID: "0a1b2c3d-0000-1111-2222-333344445555", ResourceVersion: "12345", FieldPath: "spec.containers{app}",
		},
		Reason: reason, Message: message, Type: "Warning",
		Source:              corev1.EventSource{Component: "kubelet", Host: "node-1"},
		ReportingController: "kubelet", ReportingInstance: "node-1",
	}
	e.Namespace = "default"
	return e
}

// stream is a correlator with a clock.
type stream struct {
	*Correlator
	t   testing.TB
	now time.Time
}

func newStream(t testing.TB, change func(*Options)) *stream {
	t.Helper()
	o := DefaultOptions()
	if change != nil {
		change(&o)
	}
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return &stream{Correlator: c, t: t, now: time.Unix(1000, 0)}
}

// occurs correlates an Event, a time after the one before.
func (s *stream) occurs(after time.Duration, event *corev1.Event) Decision {
	return s.reports(after, "", event)
}

// reports correlates an Event that a user reports.
func (s *stream) reports(after time.Duration, user string, event *corev1.Event) Decision {
	s.now = s.now.Add(after)
	return s.Correlate(&occurrence.Occurrence{Event: event, Weight: 1, User: user}, s.now)
}

// want fails unless a decision has a reason, a deferral, and a delay.
func (s *stream) want(d Decision, reason Reason, deferred Deferral, delay time.Duration) {
	s.t.Helper()
	if d.Reason != reason || d.Deferred != deferred || (d.Delay-delay).Abs() > time.Millisecond {
		s.t.Errorf("%s, deferred (%s) by %v; want %s, (%s) by %v", d.Reason, d.Deferred, d.Delay, reason, deferred, delay)
	}
}

func TestDecisionsCarryTheirReason(t *testing.T) {
	s := newStream(t, func(o *Options) { o.CacheSize = 2 })
	a, b, c := about("a", "r", "m"), about("b", "r", "m"), about("c", "r", "m")
	s.want(s.occurs(0, a), NewSeries, NotDeferred, 0)
	s.want(s.occurs(time.Minute, a), Repeat, NotDeferred, 0)
	s.want(s.occurs(0, b), NewSeries, NotDeferred, 0)
	s.want(s.occurs(s.options.Interval, a), Repeat, NotDeferred, 0)
	s.want(s.occurs(s.options.Interval+1, a), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, c), NewSeries, NotDeferred, 0) // evicts b
	d := s.occurs(0, b)
	s.want(d, NewSeries, NotDeferred, 0)
	if d.Target.Event != b || d.Target.Combined || d.Target.Name != "b" || d.Target.Series() != identity.Of(b) {
		t.Errorf("target %+v", d.Target)
	}
}

// With two keys, the sink would have two counters for one Event.
func TestOneEventHasOneKeyWhoeverReportsIt(t *testing.T) {
	s := newStream(t, func(o *Options) { o.MaxMessages = 2 })
	message := func(m string) *corev1.Event { return about("a", "r", m) }
	began := message("as it began")
	for name, pair := range map[string][2]*occurrence.Occurrence{
		"combined here, and by its client": {{Event: message("x"), Begun: message("y")}, {Event: message(identity.CombinedPrefix + "z")}},
		"reported at once, and raised":     {{Event: began}, {Event: message("as it is now"), Begun: began}},
		"of two users":                     {{Event: began, User: robot}, {Event: began, User: kubelet}},
		"of a user, and of this process":   {{Event: began, User: robot}, {Event: began}},
	} {
		s.Correlate(&occurrence.Occurrence{Event: began}, s.now)
		a, b := s.Correlate(pair[0], s.now).Target, s.Correlate(pair[1], s.now).Target
		if a.Series() != b.Series() || a.Key != b.Key {
			t.Errorf("%s: same Event is %v, same key is %v", name, a.Series() == b.Series(), a.Key == b.Key)
		}
		if b.Event != pair[1].Event {
			t.Errorf("%s: the Event is changed to %+v", name, b.Event)
		}
	}
}

// k/k#97367, client-go#908: client-go writes the first 25 at once, and then no count for a
// long time.
func TestRepeatsAreSpacedFartherAndFarther(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst = 100 }) // tokens for all of them
	event := about("a", "r", "m")
	s.want(s.occurs(0, event), NewSeries, NotDeferred, 0)
	now := time.Duration(0)
	for _, step := range []struct{ at, due time.Duration }{ // in milliseconds
		{300, 1000}, {600, 1000}, {1100, 2000}, {2100, 4000}, {4100, 8000}, {8100, 16_000}, {16_100, 32_000}, {32_100, 57_000},
		{57_100, 57_000 + s.options.Heartbeat/time.Millisecond},
	} {
		s.want(s.occurs((step.at-now)*time.Millisecond, event), Repeat, Spaced, (step.due-step.at)*time.Millisecond)
		now = step.at
	}
	s.want(s.occurs(5*time.Minute, event), Repeat, NotDeferred, 0)
}

func TestNewStyleSeriesHasAHeartbeat(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Heartbeat = 10 * time.Second })
	event := about("a", "r", "m")
	event.EventTime = metav1.NowMicro()
	s.want(s.occurs(0, event), NewSeries, NotDeferred, 0)
	s.want(s.occurs(time.Millisecond, event), Repeat, Spaced, 999*time.Millisecond)
	s.want(s.occurs(time.Second, event), Repeat, Spaced, 10*time.Second-time.Millisecond)
	s.want(s.occurs(10*time.Second, event), Repeat, Spaced, 10*time.Second-time.Millisecond)
	s.want(s.occurs(21*time.Second, event), Repeat, NotDeferred, 0)
}

// Ten series have half of the budget for first writes and half for final counts.
func TestFinalCountHasATokenSetAside(t *testing.T) {
	s := newStream(t, nil)
	var events []*corev1.Event
	for i := range 10 {
		events = append(events, about("a", fmt.Sprint("r", i), "m"))
		s.want(s.occurs(0, events[i]), NewSeries, NotDeferred, 0)
	}
	for range 100 { // for 50 seconds
		for _, event := range events {
			s.want(s.occurs(50*time.Millisecond, event), Repeat, Settling, s.options.Heartbeat)
		}
	}
	// All were due, and used their tokens. The reserve is still full, so the general
	// part gets the whole refill until now, and then a token per 600 s.
	s.want(s.occurs(s.options.Heartbeat+time.Second, events[0]), Repeat, Budget, s.expected(75*time.Second+time.Second))
	// Another reason is written at once (k/k#103918).
	for i := range 5 {
		s.want(s.occurs(0, about("a", fmt.Sprint("other", i), "m")), NewSeries, NotDeferred, 0)
	}
}

// expected returns the wait for a general token of a spent budget, if that part had the
// whole refill for some time.
func (s *stream) expected(full time.Duration) time.Duration {
	have := full.Seconds() * s.options.QPS
	return time.Duration((1 - have) / s.bucket.generalRate * float64(time.Second))
}

func TestSpentBudgetDefersAndRefills(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.QPS = 2, 1./100 })
	event := func(i int) *corev1.Event { return about("a", fmt.Sprint("r", i), "m") }
	s.want(s.occurs(0, event(0)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, event(1)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, event(2)), NewSeries, Budget, 100*time.Second)
	s.want(s.occurs(0, event(3)), NewSeries, Budget, 200*time.Second)
	s.want(s.occurs(0, event(0)), Repeat, Budget, 300*time.Second)
	s.want(s.occurs(50*time.Second, event(2)), Repeat, Budget, 50*time.Second)
	s.want(s.occurs(250*time.Second, event(2)), Repeat, Budget, 100*time.Second)
	// Another subject has its own budget, and so has another type.
	s.want(s.occurs(0, about("b", "r", "m")), NewSeries, NotDeferred, 0)
	normal := event(0)
	normal.Type = "Normal"
	s.want(s.occurs(0, normal), NewSeries, NotDeferred, 0)
}

// A token does not make a repeat due before its spacing.
func TestRepeatsAreSpacedThoughTokensComeFast(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.QPS = 1, 20 })
	s.want(s.occurs(0, about("a", "r", "m")), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, about("a", "r", "m")), Repeat, Spaced, time.Second)
	s.want(s.occurs(500*time.Millisecond, about("a", "r", "m")), Repeat, Spaced, 500*time.Millisecond)
	// A first write is not spaced.
	s.want(s.occurs(0, about("b", "r", "m")), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, about("b", "r2", "m")), NewSeries, Budget, 50*time.Millisecond)
	s.want(s.occurs(60*time.Millisecond, about("b", "r2", "m")), Repeat, Spaced, time.Second-10*time.Millisecond)
}

func TestUnlimitedBudget(t *testing.T) {
	s := newStream(t, func(o *Options) { o.QPS, o.Burst = math.Inf(1), 1 })
	for i := range 1000 {
		event := about("a", fmt.Sprint("r", i%60), "m")
		d := s.occurs(time.Duration(i%7)*time.Second, event)
		if d.Deferred == Budget || d.Deferred == Settling || d.Delay > s.options.Heartbeat {
			t.Fatalf("decided %+v", d)
		}
	}
}

// Difference 9 from client-go: what is dropped is reported.
func TestSubjectHasABoundedNumberOfPendingSeries(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.MaxSeries = 1, 3 })
	event := func(i int) *corev1.Event { return about("a", fmt.Sprint("r", i), "m") }
	s.want(s.occurs(0, event(0)), NewSeries, NotDeferred, 0)
	for i := 1; i <= 3; i++ { // the first is replaced
		s.want(s.occurs(0, event(i)), NewSeries, Budget, time.Duration(i)*300*time.Second)
	}
	d := s.occurs(0, event(4))
	if d.Reason != BudgetSpent || d.Drop != occurrence.BudgetSpent {
		t.Errorf("decided %+v", d)
	}
	if d := s.occurs(0, event(3)); d.Drop != occurrence.NoReason || d.Reason != Repeat {
		t.Errorf("a series that is pending: %+v", d)
	}
	s.want(s.occurs(301*time.Second, event(4)), NewSeries, Budget, 900*time.Second-time.Second)
}

func TestTimeThatGoesBackDefersNothing(t *testing.T) {
	s := newStream(t, nil)
	event := about("a", "r", "m")
	s.occurs(time.Hour, event)
	s.want(s.occurs(-30*time.Minute, event), Repeat, Spaced, time.Second)
	s.want(s.occurs(31*time.Minute, event), Repeat, NotDeferred, 0)
}

// The apiserver refuses a longer note. The differences from client-go have a test of the
// other fields.
func TestMessageOfACombinedEventIsCut(t *testing.T) {
	s := newStream(t, func(o *Options) { o.MaxMessages = 1 })
	event := about("a", "r", strings.Repeat("é", 512))
	event.EventTime = metav1.NowMicro()
	before := event.DeepCopy()
	got := s.occurs(0, event).Target.Event
	if len(got.Message) > identity.MaxNote || !strings.HasPrefix(got.Message, identity.CombinedPrefix+"éé") {
		t.Errorf("%d bytes of message %q", len(got.Message), got.Message)
	}
	if event.Message != before.Message {
		t.Error("the published Event was changed")
	}
}

func TestKeyFunctions(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.Burst, o.MaxMessages = 1, 2
		o.SubjectKey = func(e *corev1.Event) string { return e.Source.Component }
		o.GroupKey = func(e *corev1.Event) (string, string) { return e.Reason, e.InvolvedObject.Name }
		o.Message = func(e *corev1.Event) string { return "many: " + e.Message + "\xff" }
	})
	s.want(s.occurs(0, about("a", "r", "m")), NewSeries, NotDeferred, 0)
	d := s.occurs(0, about("b", "r", "m"))
	s.want(d, Combined, Budget, 300*time.Second) // of the one budget
	if d.Target.Name != "combined" || d.Target.Event.Message != "many: m\uFFFD" {
		t.Errorf("target %+v", d.Target)
	}
	if other := s.occurs(0, about("c", "r", "m")); other.Target.Key != d.Target.Key || other.Target.Series() != d.Target.Series() {
		t.Error("another combined Event for another object")
	}
	elsewhere := about("d", "r", "m")
	elsewhere.Namespace = "elsewhere"
	if other := s.occurs(0, elsewhere); other.Target.Combined {
		t.Error("an Event of another namespace is combined with the others")
	}
}

func TestKeyFunctionsMayPanic(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.MaxMessages = 2
		o.SubjectKey = func(*corev1.Event) string { panic("subject") }
		o.GroupKey = func(*corev1.Event) (string, string) { panic("group") }
		o.Message = func(*corev1.Event) string { panic("message") }
	})
	s.occurs(0, about("a", "r", "1"))
	if d := s.occurs(0, about("a", "r", "2")); d.Target.Event.Message != identity.CombinedPrefix+"2" || d.Target.Name != "a" {
		t.Errorf("decided %+v", d)
	}
}

func TestMetrics(t *testing.T) {
	r := prometheus.NewPedanticRegistry()
	s := newStream(t, func(o *Options) { o.Registerer, o.CacheSize = r, 1 })
	s.occurs(0, about("a", "r", "m"))
	s.occurs(0, about("a", "r", "m"))
	s.occurs(0, about("b", "r", "m"))
	want := `
# HELP eventd_correlator_decisions_total Decisions by reason: new_series, repeat, combined (counted on its group's combined Event), budget_spent (dropped).
# TYPE eventd_correlator_decisions_total counter
eventd_correlator_decisions_total{reason="budget_spent"} 0
eventd_correlator_decisions_total{reason="combined"} 0
eventd_correlator_decisions_total{reason="new_series"} 2
eventd_correlator_decisions_total{reason="repeat"} 1
# HELP eventd_correlator_deferred_total Occurrences with a deferred write, by reason: spaced (series written recently), settling (final count awaited), budget (subject without token).
# TYPE eventd_correlator_deferred_total counter
eventd_correlator_deferred_total{reason="budget"} 0
eventd_correlator_deferred_total{reason="settling"} 0
eventd_correlator_deferred_total{reason="spaced"} 1
# HELP eventd_correlator_evictions_total Subjects evicted because the cache was full.
# TYPE eventd_correlator_evictions_total counter
eventd_correlator_evictions_total 1
# HELP eventd_correlator_subjects Subjects in the cache.
# TYPE eventd_correlator_subjects gauge
eventd_correlator_subjects 1
`
	if err := testutil.GatherAndCompare(r, strings.NewReader(want)); err != nil {
		t.Error(err)
	}
}

func TestErrorNamesTheInvalidOption(t *testing.T) {
	for _, test := range []struct {
		field string // "" if the options are valid
		spoil func(*Options)
	}{
		{"", func(o *Options) { o.Heartbeat = MaxHeartbeat }},
		{"CacheSize", func(o *Options) { o.CacheSize = 0 }},
		{"MaxSeries", func(o *Options) { o.MaxSeries = 0 }},
		{"Burst", func(o *Options) { o.Burst = 0 }},
		{"QPS", func(o *Options) { o.QPS = 0 }},
		{"QPS", func(o *Options) { o.QPS = math.NaN() }},
		{"MaxMessages", func(o *Options) { o.MaxMessages = 0 }},
		{"Interval", func(o *Options) { o.Interval = 0 }},
		{"Heartbeat", func(o *Options) { o.Heartbeat = 0 }},
		{"Heartbeat", func(o *Options) { o.Heartbeat = MaxHeartbeat + 1 }},
	} {
		o := DefaultOptions()
		test.spoil(&o)
		_, err := New(o)
		if test.field == "" && err == nil {
			continue
		}
		if err == nil || !strings.HasPrefix(err.Error(), "correlator options: "+test.field+" must be ") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", test.field, err)
		}
	}
}
