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

// stream is a correlator with a clock.
type stream struct {
	*Correlator
	t   *testing.T
	now time.Time
}

func newStream(t *testing.T, change func(*Options)) *stream {
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

// occurs correlates an Event that occurs so long after the one before.
func (s *stream) occurs(after time.Duration, event *corev1.Event) Decision {
	s.now = s.now.Add(after)
	return s.Correlate(&occurrence.Occurrence{Event: event, Weight: 1}, s.now)
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

func TestSourceMayKnowTheSeriesBetter(t *testing.T) {
	s := newStream(t, nil)
	origin, now := about("a", "r", "as it began"), about("a", "r", "as it is now")
	first := s.Correlate(&occurrence.Occurrence{Event: origin}, s.now)
	second := s.Correlate(&occurrence.Occurrence{Event: now, Begun: origin}, s.now)
	if first.Target.Key != second.Target.Key || second.Target.Series() != identity.Of(origin) || second.Reason != Repeat {
		t.Errorf("decided %+v and %+v", first, second)
	}
}

// Two keys for one Event would be two accounts of one sink for it, each of which
// takes the other's share for its own.
func TestOneEventHasOneKeyWhoeverReportsIt(t *testing.T) {
	s := newStream(t, func(o *Options) { o.MaxMessages = 2 })
	message := func(m string) *corev1.Event { return about("a", "r", m) }
	began := message("as it began")
	for name, pair := range map[string][2]*occurrence.Occurrence{
		"combined here, and by its client": {{Event: message("x"), Begun: message("y")}, {Event: message(identity.CombinedPrefix + "z")}},
		"reported at once, and raised":     {{Event: began}, {Event: message("as it is now"), Begun: began}},
	} {
		s.Correlate(&occurrence.Occurrence{Event: began}, s.now)
		a, b := s.Correlate(pair[0], s.now).Target, s.Correlate(pair[1], s.now).Target
		if a.Series() != b.Series() || a.Key != b.Key {
			t.Errorf("%s: same Event is %v, same key is %v", name, a.Series() == b.Series(), a.Key == b.Key)
		}
	}
}

// k/k#97367, client-go#908: client-go writes the first 25 of them at once, and no
// count for a long time after that.
func TestRepeatsAreSpacedFartherAndFarther(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst = 100 }) // so that there are tokens for all of them
	event := about("a", "r", "m")
	s.want(s.occurs(0, event), NewSeries, NotDeferred, 0)
	s.want(s.occurs(300*time.Millisecond, event), Repeat, Spaced, 700*time.Millisecond)
	s.want(s.occurs(300*time.Millisecond, event), Repeat, Spaced, 400*time.Millisecond)
	s.want(s.occurs(500*time.Millisecond, event), Repeat, Spaced, 900*time.Millisecond) // at 1.1 s, due at 2 s
	s.want(s.occurs(time.Second, event), Repeat, Spaced, 1900*time.Millisecond)         // at 2.1 s, due at 4 s
	s.want(s.occurs(2*time.Second, event), Repeat, Spaced, 3900*time.Millisecond)       // at 4.1 s, due at 8 s
	s.want(s.occurs(4*time.Second, event), Repeat, Spaced, 7900*time.Millisecond)       // at 8.1 s, due at 16 s
	s.want(s.occurs(8*time.Second, event), Repeat, Spaced, 15900*time.Millisecond)      // at 16.1 s, due at 32 s
	s.want(s.occurs(16*time.Second, event), Repeat, Spaced, 24900*time.Millisecond)     // at 32.1 s, due at 57 s
	s.want(s.occurs(25*time.Second, event), Repeat, Spaced, s.options.Heartbeat-100*time.Millisecond)
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

// Ten series that repeat themselves have half of the budget for their first
// writes and the other for their final counts.
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
	// All are due by now, and the tokens are used. There is one for every 600 s:
	// the rest comes from what is reserved for first writes, which is full.
	s.want(s.occurs(s.options.Heartbeat+time.Second, events[0]), Repeat, Budget, s.expected(75*time.Second+time.Second))
	// But another reason is heard at once (k/k#103918).
	for i := range 5 {
		s.want(s.occurs(0, about("a", fmt.Sprint("other", i), "m")), NewSeries, NotDeferred, 0)
	}
}

// expected is how long a token takes that the general part of a spent budget
// waits for, if that part has had everything for so long.
func (s *stream) expected(full time.Duration) time.Duration {
	have := full.Seconds() * s.options.QPS
	return time.Duration((1 - have) / s.bucket.generalRate * float64(time.Second))
}

func TestSpentBudgetDefersAndComesBack(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.QPS = 2, 1./100 })
	event := func(i int) *corev1.Event { return about("a", fmt.Sprint("r", i), "m") }
	s.want(s.occurs(0, event(0)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, event(1)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, event(2)), NewSeries, Budget, 100*time.Second)
	s.want(s.occurs(0, event(3)), NewSeries, Budget, 200*time.Second)
	s.want(s.occurs(0, event(0)), Repeat, Budget, 300*time.Second)
	s.want(s.occurs(50*time.Second, event(2)), Repeat, Budget, 50*time.Second)
	s.want(s.occurs(250*time.Second, event(2)), Repeat, Budget, 100*time.Second)
	// Another subject has a budget of its own, and a Warning another than a Normal.
	s.want(s.occurs(0, about("b", "r", "m")), NewSeries, NotDeferred, 0)
	normal := event(0)
	normal.Type = "Normal"
	s.want(s.occurs(0, normal), NewSeries, NotDeferred, 0)
}

// A token that comes at once is no reason to write a repeat at once.
func TestRepeatsAreSpacedThoughTokensComeFast(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.QPS = 1, 20 })
	s.want(s.occurs(0, about("a", "r", "m")), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, about("a", "r", "m")), Repeat, Spaced, time.Second)
	s.want(s.occurs(500*time.Millisecond, about("a", "r", "m")), Repeat, Spaced, 500*time.Millisecond)
	// But a first write comes with its token.
	s.want(s.occurs(0, about("b", "r", "m")), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, about("b", "r2", "m")), NewSeries, Budget, 50*time.Millisecond)
	s.want(s.occurs(60*time.Millisecond, about("b", "r2", "m")), Repeat, Spaced, time.Second-10*time.Millisecond)
}

// A first write that waits for a reserved token goes on waiting for it, though no
// other token is claimed.
func TestRepeatDoesNotBringForwardWhatWaitsForTheReserve(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.QPS = 5, 1./50 }) // one of each kind in 100 s
	reason := func(i int) *corev1.Event { return about("a", fmt.Sprint("r", i), "m") }
	s.want(s.occurs(0, reason(0)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, reason(1)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(10*time.Second, reason(2)), NewSeries, NotDeferred, 0) // the reserved one
	s.want(s.occurs(0, reason(3)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(0, reason(4)), NewSeries, NotDeferred, 0)
	s.want(s.occurs(80*time.Second, reason(5)), NewSeries, NotDeferred, 0) // not the reserved one
	s.want(s.occurs(time.Second, reason(6)), NewSeries, Budget, 19*time.Second)
	s.want(s.occurs(time.Second, reason(6)), Repeat, Budget, 18*time.Second)
}

// k/k#103918, k/k#75106: in client-go one noisy reason spends the budget of all.
func TestNoisyReasonDoesNotSilenceAnother(t *testing.T) {
	s := newStream(t, nil)
	for i := range 100_000 {
		s.occurs(time.Millisecond, about("a", "Noisy", fmt.Sprint("message ", i)))
	}
	for i := range 4 {
		s.want(s.occurs(0, about("a", fmt.Sprint("Rare", i), "m")), NewSeries, NotDeferred, 0)
	}
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

func TestSubjectOwesABoundedNumberOfSeries(t *testing.T) {
	s := newStream(t, func(o *Options) { o.Burst, o.MaxSeries = 1, 3 })
	event := func(i int) *corev1.Event { return about("a", fmt.Sprint("r", i), "m") }
	s.want(s.occurs(0, event(0)), NewSeries, NotDeferred, 0)
	for i := 1; i <= 3; i++ { // the first owes nothing and makes room
		s.want(s.occurs(0, event(i)), NewSeries, Budget, time.Duration(i)*300*time.Second)
	}
	d := s.occurs(0, event(4))
	if d.Reason != BudgetSpent || d.Drop != occurrence.BudgetSpent {
		t.Errorf("decided %+v", d)
	}
	if d := s.occurs(0, event(3)); d.Drop != occurrence.NoReason || d.Reason != Repeat {
		t.Errorf("a series that is owed anyway: %+v", d)
	}
	s.want(s.occurs(301*time.Second, event(4)), NewSeries, Budget, 900*time.Second-time.Second)
}

func TestTenthMessageOfAGroupIsCombined(t *testing.T) {
	s := newStream(t, nil)
	message := func(i int) *corev1.Event { return about("a", "r", fmt.Sprint("message ", i)) }
	for range 2 {
		for i := range 9 {
			if d := s.occurs(0, message(i)); d.Reason == Combined || d.Target.Combined {
				t.Errorf("message %d: %+v", i, d)
			}
		}
	}
	var keys []occurrence.Key
	for i := 9; i < 12; i++ {
		d := s.occurs(0, message(i))
		if d.Reason != Combined || !d.Target.Combined || d.Target.Event.Message != identity.CombinedPrefix+fmt.Sprint("message ", i) {
			t.Errorf("message %d: %+v", i, d)
		}
		keys = append(keys, d.Target.Key)
		clients := about("a", "r", identity.CombinedPrefix+"x")
		if theirs := s.occurs(0, clients); theirs.Target.Key != d.Target.Key || d.Target.Series() != identity.Of(clients) || !theirs.Target.Combined {
			t.Errorf("a client's own combined Event is another: %+v", theirs)
		}
	}
	if keys[0] != keys[1] || keys[1] != keys[2] {
		t.Error("several combined Events")
	}
	if d := s.occurs(0, about("a", "other", "m")); d.Target.Combined {
		t.Error("another reason is combined")
	}
	if d := s.occurs(s.options.Interval+1, message(99)); d.Target.Combined {
		t.Error("combined after a quiet interval")
	}
}

// open-policy-agent/gatekeeper#2687: client-go's combined Events have lost them.
func TestCombinedEventKeepsItsFields(t *testing.T) {
	s := newStream(t, func(o *Options) { o.MaxMessages = 1 })
	event := about("a", "r", "m")
	event.EventTime = metav1.NowMicro()
	event.Annotations = map[string]string{"a": "b"}
	event.Labels = map[string]string{"c": "d"}
	event.Action = "Acted"
	event.Related = &corev1.ObjectReference{Name: "other"}
	event.Message = strings.Repeat("é", 512)
	before := event.DeepCopy()
	got := s.occurs(0, event).Target.Event
	if got.Annotations["a"] != "b" || got.Labels["c"] != "d" || got.Action != "Acted" || got.Related.Name != "other" ||
		got.ReportingController != event.ReportingController || got.ReportingInstance != event.ReportingInstance {
		t.Errorf("combined: %+v", got)
	}
	if len(got.Message) > identity.MaxNote || !strings.HasPrefix(got.Message, identity.CombinedPrefix+"éé") {
		t.Errorf("%d bytes of message %q", len(got.Message), got.Message)
	}
	if event.Message != before.Message {
		t.Error("what was published has changed")
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

// One key function, as a library of controllers might set it for all of them.
func TestReportersHaveCombinedEventsOfTheirOwnWhateverTheKeyFunction(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.MaxMessages = 2
		o.GroupKey = func(e *corev1.Event) (string, string) { return e.Reason, e.Message }
	})
	combined := func(controller string) occurrence.Target {
		for i := range 2 {
			event := about("a", "r", fmt.Sprint("m", i))
			event.Source, event.ReportingController = corev1.EventSource{Component: controller}, controller
			if d := s.occurs(0, event); i == 1 {
				return d.Target
			}
		}
		panic("unreachable")
	}
	one, other := combined("one"), combined("other")
	if !one.Combined || !other.Combined || one.Key == other.Key || one.Series() == other.Series() {
		t.Errorf("two controllers have one combined Event: %+v, %+v", one, other)
	}
}

// Somebody's subject may have many objects, but messages about one of them do not
// make those about another too many.
func TestGroupsAreOfOneObjectWhateverTheSubject(t *testing.T) {
	s := newStream(t, func(o *Options) {
		o.MaxMessages = 2
		o.SubjectKey = func(e *corev1.Event) string { return e.Source.Component }
	})
	for i := range 5 {
		if d := s.occurs(0, about(fmt.Sprint("pod-", i), "r", "m")); d.Target.Combined {
			t.Errorf("the first message about object %d is combined", i)
		}
	}
	if d := s.occurs(0, about("pod-0", "r", "another")); !d.Target.Combined {
		t.Error("the second message about an object is not combined")
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

func TestTimeThatGoesBackDefersNothing(t *testing.T) {
	s := newStream(t, nil)
	event := about("a", "r", "m")
	s.occurs(time.Hour, event)
	s.want(s.occurs(-30*time.Minute, event), Repeat, Spaced, time.Second)
	s.want(s.occurs(31*time.Minute, event), Repeat, NotDeferred, 0)
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
	if _, err := New(Options{}); err == nil {
		t.Error("no options are taken for good")
	}
}

func TestOptionsAreValidated(t *testing.T) {
	for name, spoil := range map[string]func(*Options){
		"cache size":          func(o *Options) { o.CacheSize = 0 },
		"series per subject":  func(o *Options) { o.MaxSeries = 0 },
		"burst":               func(o *Options) { o.Burst = 0 },
		"QPS":                 func(o *Options) { o.QPS = 0 },
		"QPS is not a number": func(o *Options) { o.QPS = math.NaN() },
		"messages":            func(o *Options) { o.MaxMessages = 0 },
		"interval":            func(o *Options) { o.Interval = 0 },
		"heartbeat":           func(o *Options) { o.Heartbeat = 0 },
		"long heartbeat":      func(o *Options) { o.Heartbeat = math.MaxInt64 },
	} {
		o := DefaultOptions()
		spoil(&o)
		if _, err := New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestLongestHeartbeatIsAccepted(t *testing.T) {
	o := DefaultOptions()
	o.Heartbeat = MaxHeartbeat
	if _, err := New(o); err != nil {
		t.Error(err)
	}
}
