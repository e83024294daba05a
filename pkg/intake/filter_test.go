package intake_test

import (
	"fmt"
	"net/http"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// filter is rules that drop while a test wants it.
type filter struct {
	mu     sync.Mutex
	drops  occurrence.Reason // the rule, none if it is empty
	dryRun string            // a rule that matches in dry run, none if it is empty
	budget *occurrence.Budget
	panics bool
	asked  []int64 // weights
	seen   *corev1.Event
	got    []*occurrence.Occurrence // what was filtered
}

func (f *filter) decide(event *corev1.Event, weight int64, dryRun func(rule, action string)) (occurrence.Reason, *occurrence.Budget) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.panics {
		panic("deciding")
	}
	f.asked, f.seen = append(f.asked, weight), event
	if f.dryRun != "" && dryRun != nil {
		dryRun(f.dryRun, "would_drop")
	}
	return f.drops, f.budget
}

func (f *filter) count(o *occurrence.Occurrence, rule occurrence.Reason) {
	f.got = append(f.got, o)
	o.Settled(occurrence.Settlement{Outcome: occurrence.Filtered, Reason: rule})
}

func (f *filter) becomes(rule occurrence.Reason) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.drops = rule
}

// weights are those of all that was filtered, in order.
func (f *filter) weights() (weights []int64) {
	for _, o := range f.got {
		weights = append(weights, o.Weight)
	}
	return weights
}

// serveFiltered serves with the rules.
func serveFiltered(t *testing.T, p *fakePipeline, f *filter) *server {
	t.Helper()
	return serve(t, p, withOptions(func(o *intake.Options) { o.Rules, o.Filter = f.decide, f.count }))
}

// The client does not learn that a rule has dropped what it reports.
func TestFilteredReportIsAnsweredAsIfItWereDeferred(t *testing.T) {
	f := &filter{drops: "noise"}
	filtered, deferred := serveFiltered(t, written(), f), serve(t, later())
	for _, step := range []struct {
		method, path, contentType string
		body                      any
		code                      int
	}{
		{http.MethodPost, coreEvents, jsonType, classic("a", 1), 202},
		{http.MethodPost, coreEvents, jsonType, classic("a", 1), 409},
		{http.MethodPatch, coreEvents + "/a", strategicType, `{"count":2}`, 202},
		{http.MethodPatch, coreEvents + "/a", strategicType, `{"count":2}`, 200},
		{http.MethodPatch, coreEvents + "/a", mergeType, `{"message":"other"}`, 202},
		{http.MethodPut, coreEvents + "/a", jsonType, classic("a", 9), 202},
		{http.MethodPut, coreEvents + "/created-by-put", jsonType, classic("created-by-put", 5), 202},
		{http.MethodPost, newEvents, jsonType, fmt.Sprintf(newStyleJSON, "n"), 202},
		{http.MethodPatch, newEvents + "/n", strategicType, `{"series":{"count":3,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`, 202},
		{http.MethodPatch, coreEvents + "/unknown", strategicType, `{"count":2}`, 404},
	} {
		got := filtered.Do(t, step.method, step.path, step.body, "Content-Type", step.contentType)
		want := deferred.Do(t, step.method, step.path, step.body, "Content-Type", step.contentType)
		if got.Code != step.code || want.Code != step.code {
			t.Fatalf("%s %s: answered %d and, if it is deferred, %d; want %d: %s", step.method, step.path, got.Code, want.Code, step.code, got.Body)
		}
		if step.code < 300 {
			a, b := got.Event(t), want.Event(t)
			a.UID, b.UID, a.CreationTimestamp, b.CreationTimestamp = "", "", metav1.Time{}, metav1.Time{}
			equal(t, step.method+" "+step.path, a, b)
		}
	}
	filtered.Pipeline.WantRecorded(t, 0)
	equal(t, "filtered", f.weights(), deferred.Pipeline.Weights())
}

// A rule in dry run is reported with what is new in a report, and who has reported it.
func TestDryRunIsReported(t *testing.T) {
	f := &filter{dryRun: "maybe"}
	var got []string
	s := serve(t, written(), withOptions(func(o *intake.Options) {
		o.Rules, o.Filter = f.decide, f.count
		o.DryRun = func(o *occurrence.Occurrence, weight int64, rule, action string) {
			got = append(got, fmt.Sprint(o.User, " ", o.Event.InvolvedObject.Name, " ", weight, " ", rule, " ", action))
		}
	}))
	s.Post(t, classic("a", 2)).Want(t, http.StatusCreated, "")
	s.Patch(t, "a", `{"count":5}`).Want(t, http.StatusOK, "")
	equal(t, "reported", got, []string{"tester web-0 2 maybe would_drop", "tester web-0 3 maybe would_drop"})
	s.Pipeline.WantWeights(t, 2, 3)
}

// What was filtered is in no later report.
func TestClientGoesOnAfterItsReportIsFiltered(t *testing.T) {
	f := &filter{drops: "noise"}
	s := serveFiltered(t, written(), f)
	first := s.Post(t, classic("a", 2))
	first.Want(t, http.StatusAccepted, "")
	f.becomes("")
	a := s.Patch(t, "a", `{"count":5,"reason":"Other"}`)
	a.Want(t, http.StatusOK, "")
	equal(t, "uid", a.Event(t).UID, "stored-uid")
	o := s.Pipeline.Occurrences()[0]
	equal(t, "reason of the series", o.Identified().Reason, "Started")
	f.becomes("noise")
	s.Patch(t, "a", `{"count":9}`).Want(t, http.StatusAccepted, "")
	f.becomes("")
	s.Patch(t, "a", `{"count":10}`).Want(t, http.StatusOK, "")
	s.Pipeline.WantWeights(t, 3, 1)
	equal(t, "filtered", f.weights(), []int64{2, 4})
	equal(t, "asked about", f.asked, []int64{2, 3, 4, 1})
	for i, want := range []int64{5, 10} {
		o := s.Pipeline.Occurrences()[i]
		equal(t, "total", o.Total, want)
		equal(t, "client", o.Client, "a")
	}
}

// A report that waits accounts for itself, whatever becomes of it. The next one is about what the
// client has reported last.
func TestFilteredReportIsCountedOnceWhileAnEarlierOneWaits(t *testing.T) {
	for name, end := range map[string]occurrence.Settlement{
		"written": stored(occurrence.Created, 7), "dropped": refusedFor, "uncertain": uncertain,
	} {
		t.Run(name, func(t *testing.T) {
			f := &filter{}
			s := serveFiltered(t, kept(), f)
			posted, post := s.posting(t, "a", 1)
			f.becomes("noise")
			a := s.Patch(t, "a", `{"count":3,"message":"as it is now"}`)
			a.Want(t, http.StatusAccepted, "")
			f.becomes("")
			event := a.Event(t)
			event.Count = 5
			put, o := s.pending(func() answer { return s.Do(t, http.MethodPut, coreEvents+"/a", event) })
			equal(t, "message", o.Event.Message, "as it is now")
			f.becomes("noise")
			s.Patch(t, "a", `{"count":6}`).Want(t, http.StatusAccepted, "")
			s.Patch(t, "a", `{"count":4}`).Want(t, http.StatusAccepted, "") // less than before
			post.Settled(end)
			<-posted
			o.Settled(stored(occurrence.Merged, 8))
			(<-put).Want(t, http.StatusOK, "")
			f.becomes("")
			next, last := s.patching(t, "a", 8)
			last.Settled(stored(occurrence.Merged, 9))
			(<-next).Want(t, http.StatusOK, "")
			s.Pipeline.WantWeights(t, 1, 2, 2)
			equal(t, "filtered", f.weights(), []int64{2, 1, 0})
		})
	}
}

func TestRulesSeeTheReportAndSetItsBudget(t *testing.T) {
	budget, err := occurrence.NewBudget("slow", 1, 1)
	if err != nil {
		t.Fatal(err)
	}
	f := &filter{budget: budget}
	s := serveFiltered(t, written(), f)
	s.Post(t, classic("a", 4)).Want(t, http.StatusCreated, "")
	o := s.Pipeline.Occurrences()[0]
	equal(t, "budget", o.Budget, budget)
	equal(t, "Event", f.seen, o.Event)
	equal(t, "name", f.seen.Name, "a")
	equal(t, "count", f.seen.Count, 4)
	s.Patch(t, "a", `{"count":6,"source":{"component":"forged"}}`).Want(t, http.StatusOK, "")
	equal(t, "component of the series", f.seen.Source.Component, "kubelet")
	equal(t, "asked about", f.asked, []int64{4, 2})
	s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("b", 1)).Want(t, http.StatusCreated, "")
	equal(t, "asked after a dry run", len(f.asked), 2)
}

func TestPanicOfRulesIsAnswered(t *testing.T) {
	f := &filter{panics: true}
	s := serveFiltered(t, written(), f)
	s.Post(t, classic("a", 1)).Want(t, 500, metav1.StatusReasonInternalError)
	f.panics = false
	s.Post(t, classic("a", 1)).Want(t, 201, "") // the name is free again
}

// A change of another field finds no Event to change: rules have filtered all that it would count.
func TestChangeOfWhatIsFilteredIsAcceptedThoughNothingIsStored(t *testing.T) {
	f := &filter{drops: "noise"}
	s := serveFiltered(t, written(), f)
	s.Post(t, classic("a", 3)).Want(t, http.StatusAccepted, "")
	f.becomes("")
	s.Patch(t, "a", `{"message":"other"}`).Want(t, http.StatusAccepted, "")
	s.Patch(t, "a", `{"count":4}`).Want(t, http.StatusOK, "")
	s.Patch(t, "a", `{"message":"another"}`).Want(t, http.StatusOK, "")
	s.Pipeline.WantWeights(t, 1, 0)
}

// When the Event has expired, its client posts it again, with a total that includes what was filtered.
func TestExpiredEventIsPostedAgainWithoutWhatWasFiltered(t *testing.T) {
	gone := settled(dropped(occurrence.Refused, apierrors.NewNotFound(ofEvents, "web-0.0123")))
	f := &filter{drops: "noise"}
	s := serveFiltered(t, written(), f)
	s.Post(t, classic("a", 3)).Want(t, http.StatusAccepted, "")
	f.becomes("")
	s.Patch(t, "a", `{"count":7}`).Want(t, http.StatusOK, "")
	expire := func() {
		t.Helper()
		s.Pipeline.Becomes(gone)
		s.Patch(t, "a", `{"message":"other"}`).Want(t, http.StatusNotFound, metav1.StatusReasonNotFound)
		s.Patch(t, "a", `{"count":8}`).Want(t, http.StatusNotFound, metav1.StatusReasonNotFound)
		s.Pipeline.Becomes(written())
	}
	expire()
	s.Post(t, classic("a", 8)).Want(t, http.StatusCreated, "")
	s.Patch(t, "a", `{"count":9}`).Want(t, http.StatusOK, "")
	expire()
	s.Post(t, classic("a", 2)).Want(t, http.StatusCreated, "") // the client has begun anew
	s.Patch(t, "a", `{"count":5}`).Want(t, http.StatusOK, "")
	s.Pipeline.WantWeights(t, 4, 0, 5, 1, 0, 2, 3)
	equal(t, "filtered", f.weights(), []int64{3})
}
