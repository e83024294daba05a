package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func dropped(reason occurrence.Reason, err error) occurrence.Settlement {
	return occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}
}

var uncertain = occurrence.Settlement{Outcome: occurrence.Uncertain, Err: context.DeadlineExceeded}

func TestAnswersFollowWhatBecameOfTheOccurrence(t *testing.T) {
	const (
		tooMany     = metav1.StatusReasonTooManyRequests
		unavailable = metav1.StatusReasonServiceUnavailable
	)
	derived := schema.GroupResource{Resource: "events"}
	terminating := apierrors.NewForbidden(derived, "web-0.0123", errors.New(`unable to create new content in namespace ns because it is being terminated`))
	noNamespace := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")
	invalid := apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "web-0.0123", nil)
	for name, test := range map[string]struct {
		settlement occurrence.Settlement
		code       int
		reason     metav1.StatusReason
		retryAfter string
		details    string // the name in them
	}{
		"queue full":             {dropped(occurrence.QueueFull, nil), 429, tooMany, "1", ""},
		"pending full":           {dropped(occurrence.PendingFull, nil), 429, tooMany, "1", ""},
		"not replicated":         {dropped(occurrence.NotReplicated, nil), 429, tooMany, "1", ""},
		"budget spent":           {dropped(occurrence.BudgetSpent, nil), 429, tooMany, "", ""},
		"shutdown":               {dropped(occurrence.Shutdown, nil), 503, unavailable, "1", ""},
		"no sink":                {dropped(occurrence.NoSink, nil), 503, unavailable, "1", ""},
		"retries exhausted":      {dropped(occurrence.RetriesExhausted, errors.New("no connection")), 503, unavailable, "1", ""},
		"uncertain":              {uncertain, 503, unavailable, "1", ""},
		"no namespace":           {dropped(occurrence.NamespaceNotFound, noNamespace), 404, metav1.StatusReasonNotFound, "", "ns"},
		"terminating":            {dropped(occurrence.NamespaceTerminating, fmt.Errorf("writing: %w", terminating)), 403, metav1.StatusReasonForbidden, "", "a"},
		"invalid":                {dropped(occurrence.Invalid, invalid), 422, metav1.StatusReasonInvalid, "", "a"},
		"gone":                   {dropped(occurrence.Refused, apierrors.NewNotFound(derived, "web-0.0123")), 404, metav1.StatusReasonNotFound, "", "a"},
		"eventd is unauthorized": {dropped(occurrence.Refused, apierrors.NewUnauthorized("Unauthorized")), 503, unavailable, "1", ""},
		"a conflict":             {dropped(occurrence.Refused, apierrors.NewConflict(derived, "web-0.0123", errors.New(`"web-0.0123" is odd`))), 409, metav1.StatusReasonConflict, "", "a"},
		"without details":        {dropped(occurrence.Refused, &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: 400}}), 400, "", "", ""},
		"refused":                {dropped(occurrence.Refused, nil), 500, metav1.StatusReasonInternalError, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			refused := settled(test.settlement)
			check := func(a answer) {
				t.Helper()
				a.Want(t, test.code, test.reason)
				equal(t, "Retry-After", a.Header.Get("Retry-After"), test.retryAfter)
				if got := a.Status(t).Details; test.details != "" && (got == nil || got.Name != test.details) {
					t.Errorf("details %+v, want the name %q", got, test.details)
				}
				if strings.Contains(string(a.Body), "0123") {
					t.Errorf("the stored Event's name is in the response: %s", a.Body)
				}
			}
			s := serve(t, refused)
			check(s.Post(t, classic("a", 1)))
			check(s.Post(t, classic("a", 1))) // it can be tried again
			refused.WantRecorded(t, 2)
			s.Patch(t, "a", `{"count":2}`).Want(t, 404, metav1.StatusReasonNotFound) // nothing is remembered

			known := serve(t, written())
			known.Post(t, classic("a", 1)).Want(t, 201, "")
			known.Pipeline.Becomes(refused)
			check(known.Patch(t, "a", `{"count":2}`))
			known.Pipeline.Becomes(written())
			equal(t, "its name is forgotten", known.Patch(t, "a", `{"count":3}`).Code == 404, name == "gone")

			// If an Event without a name may be written, the client must not send it again:
			// it would have another name, and be counted twice.
			if name == "uncertain" {
				test.code, test.reason, test.retryAfter = 504, metav1.StatusReasonTimeout, ""
			}
			if test.details == "a" {
				test.details = "" // it is generated
			}
			unnamed := classic("", 1)
			unnamed.GenerateName = "a-"
			check(s.Post(t, unnamed))
			check(s.Do(t, http.MethodPost, newEvents, strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)))
			refused.WantRecorded(t, 4)
		})
	}
}

// A report that is not written leaves the view as it was, unless the Event has expired:
// then it can be posted again.
func TestViewAfterAReportThatIsNotWritten(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.Post(t, classic("a", 1)).Want(t, 201, "")
	p.Becomes(settled(uncertain))
	s.Patch(t, "a", `{"count":5}`).Want(t, 503, metav1.StatusReasonServiceUnavailable)
	p.Becomes(written())
	s.Patch(t, "a", `{"count":5}`).Want(t, 200, "")
	expired := apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "web-0.0123")
	p.Becomes(settled(dropped(occurrence.Refused, expired)))
	s.Patch(t, "a", `{"message":"other"}`).Want(t, 404, metav1.StatusReasonNotFound)
	p.Becomes(written())
	s.Post(t, classic("a", 2)).Want(t, 201, "")
	p.WantWeights(t, 1, 4, 4, 0, 2)
}

func TestReplayedPostIsRefusedAndRemembered(t *testing.T) {
	p := settled(stored(occurrence.Replayed, 5))
	s := serve(t, p)
	s.Post(t, classic("a", 4)).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	a := s.Patch(t, "a", `{"count":6}`) // replayed as well, but that counts as written
	a.Want(t, http.StatusOK, "")
	equal(t, "count", a.Event(t).Count, 6)
	p.WantWeights(t, 4, 2)
}

func TestOccurrenceOutlivesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		// abandoned is the occurrence of a request whose client goes away.
		abandoned := func(method, path string, body any) *occurrence.Occurrence {
			ctx, leave := context.WithCancel(t.Context())
			answered, o := s.pending(func() answer { return s.DoUntil(ctx, t, method, path, body) })
			leave()
			<-answered
			return o
		}
		post := abandoned(http.MethodPost, coreEvents, classic("a", 1))
		raise := abandoned(http.MethodPatch, coreEvents+"/a", `{"count":2}`)
		post.Settled(stored(occurrence.Created, 1))
		raise.Settled(dropped(occurrence.QueueFull, nil))
		abandoned(http.MethodPatch, coreEvents+"/a", `{"count":3}`).Settled(stored(occurrence.Merged, 2))
		a := s.Patch(t, "a", `{"count":3}`) // the client's retry
		a.Want(t, 200, "")
		equal(t, "resourceVersion", a.Event(t).ResourceVersion, "2")
		abandoned(http.MethodPost, coreEvents, classic("b", 2)).Deferred()
		s.Post(t, classic("b", 2)).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		s.Pipeline.WantWeights(t, 1, 2, 2, 2)
	})
}

func TestRequestEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		timesOut := func(after time.Duration, method, path string, body any) {
			t.Helper()
			begun := time.Now()
			s.Do(t, method, path, body).Want(t, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			equal(t, "answered after", time.Since(begun), after-min(100*time.Millisecond, after/10))
		}
		timesOut(5*time.Second, http.MethodPost, coreEvents+"?timeout=5s", classic("a", 1))
		timesOut(50*time.Millisecond, http.MethodPost, coreEvents+"?timeout=50ms", classic("a", 1))
		timesOut(34*time.Second, http.MethodPost, coreEvents, classic("a", 1))
		timesOut(34*time.Second, http.MethodPatch, coreEvents+"/a", `{}`)
		(<-s.Pipeline.Recorded).Settled(stored(occurrence.Created, 1))
		s.Patch(t, "a", `{}`).Want(t, 200, "")
	})
}

// What a body takes to arrive is part of the time of its request.
func TestTimeoutIncludesTheBody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := bothHandlers(t, kept)
		for handler, s := range map[string]*server{"plain": p.plain, "not plain": p.generic} {
			body, end := io.Pipe()
			data := must(json.Marshal(classic("a", 1)))
			req := usualRequest{method: http.MethodPost, path: coreEvents, contentType: jsonType, body: data}.build(t.Context())
			req.Body = body
			time.AfterFunc(40*time.Second, func() {
				_, _ = end.Write(data)
				_ = end.Close()
			})
			begun := time.Now()
			s.Send(req).Want(t, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			equal(t, handler+": answered after", time.Since(begun), time.Minute-100*time.Millisecond)
			s.Pipeline.WantRecorded(t, 1)
		}
	})
}

func TestPanicWhileRecordingIsAnswered(t *testing.T) {
	broken := true
	s := serve(t, written(), withOptions(func(o *intake.Options) {
		record := o.Record
		o.Record = func(occurred *occurrence.Occurrence) {
			if broken {
				panic("recording")
			}
			record(occurred)
		}
	}))
	s.Post(t, classic("a", 1)).Want(t, 500, metav1.StatusReasonInternalError)
	broken = false
	s.Post(t, classic("a", 1)).Want(t, 201, "") // the name is free again
	s.Post(t, classic("b", 1)).Want(t, 201, "")
}

func TestStoredObjectMayBeMissing(t *testing.T) {
	s := serve(t, settled(occurrence.Settlement{Outcome: occurrence.Aggregated}))
	a := s.Post(t, classic("a", 1))
	a.Want(t, 201, "")
	if got := a.Event(t); got.UID == "" || got.ResourceVersion == "" || got.CreationTimestamp.IsZero() {
		t.Errorf("answered %+v", got.ObjectMeta)
	}
	s.Patch(t, "a", `{"count":2}`).Want(t, 200, "")
}

// TestEveryRaiseIsReportedOnce lets many clients of few names raise their counts at once,
// while reports are lost, deferred, replayed, refused and forgotten. What was written of a
// name must cover what it was raised to.
func TestEveryRaiseIsReportedOnce(t *testing.T) {
	const clients, names, raises = 8, 3, 30
	covered := make(map[string]int64) // by name, as the sink's named shares do
	var sum int64
	p := written()
	n := 0
	p.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
		n++
		p.Deferring = n%5 == 2
		switch n % 5 {
		case 0:
			return dropped(occurrence.QueueFull, nil), true
		case 1:
			return uncertain, true
		}
		sum += max(0, o.Total-max(covered[o.Client], o.Total-o.Weight))
		covered[o.Client] = max(covered[o.Client], o.Total)
		return stored(occurrence.Merged, n), true
	}
	s := serve(t, p, withOptions(func(o *intake.Options) { o.MaxNames = 2 }))

	want := make(map[string]int64)
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range clients {
		name := fmt.Sprint("n", c%names)
		wg.Go(func() {
			for range raises {
				mu.Lock()
				want[name]++
				count := int32(want[name])
				mu.Unlock()
				for code := 0; code != 200 && code != 201 && code != 202; {
					// As client-go: patch, and post if there is nothing to patch.
					if code = s.Patch(t, name, `{"count":%d}`, count).Code; code == 404 {
						code = s.Post(t, classic(name, count)).Code
					}
				}
			}
		})
	}
	wg.Wait()
	equal(t, "written of each name", covered, want)
	equal(t, "counted", sum, clients*raises)
}

// later is a pipeline that writes everything later.
func later() *fakePipeline {
	p := written()
	p.Deferring = true
	return p
}

func TestEveryVerbIsAnsweredAcceptedWhenItsWriteIsDeferred(t *testing.T) {
	s := serve(t, later())
	for _, step := range []struct {
		method, path, contentType string
		body                      any
		name                      string
		count                     int32
	}{
		{http.MethodPost, coreEvents, jsonType, classic("a", 1), "a", 1},
		{http.MethodPatch, coreEvents + "/a", strategicType, `{"count":2}`, "a", 2},
		{http.MethodPatch, coreEvents + "/a", mergeType, `{"count":4}`, "a", 4},
		{http.MethodPatch, coreEvents + "/a", jsonPatchType, `[{"op":"replace","path":"/count","value":6}]`, "a", 6},
		{http.MethodPut, coreEvents + "/a", jsonType, classic("a", 9), "a", 9},
		{http.MethodPut, coreEvents + "/created-by-put", jsonType, classic("created-by-put", 5), "created-by-put", 5},
		{http.MethodPost, newEvents, jsonType, fmt.Sprintf(newStyleJSON, "n"), "n", 0},
		{http.MethodPatch, newEvents + "/n", strategicType, `{"series":{"count":3,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`, "n", 0},
		{http.MethodPut, newEvents + "/m", jsonType, fmt.Sprintf(newStyleJSON, "m"), "m", 0},
	} {
		a := s.Do(t, step.method, step.path, step.body, "Content-Type", step.contentType)
		a.Want(t, http.StatusAccepted, "")
		if got := a.Event(t); got.Name != step.name || got.Count != step.count || got.ResourceVersion == "" || got.UID == "" || got.CreationTimestamp.IsZero() {
			t.Errorf("%s %s: answered %s", step.method, step.path, a.Body)
		}
	}
	s.Pipeline.WantWeights(t, 1, 1, 2, 2, 3, 5, 1, 2, 1)
	counted := s.requests(t)
	maps.DeleteFunc(counted, func(_ string, n float64) bool { return n == 0 })
	equal(t, "requests", counted, map[string]float64{
		"core/v1 202 create": 1, "core/v1 202 patch": 3, "core/v1 202 update": 2,
		"events.k8s.io/v1 202 create": 1, "events.k8s.io/v1 202 patch": 1, "events.k8s.io/v1 202 update": 1,
	})
}

func TestOnlyTheFirstOutcomeCounts(t *testing.T) {
	s := serve(t, kept())
	answered, o := s.posting(t, "a", 1)
	o.Settled(stored(occurrence.Created, 7))
	o.Settled(dropped(occurrence.Shutdown, nil)) // another sink's
	o.Settled(stored(occurrence.Merged, 8))
	o.Deferred()
	a := <-answered
	a.Want(t, http.StatusCreated, "")
	equal(t, "resourceVersion", a.Event(t).ResourceVersion, "7")
	equal(t, "resourceVersion afterwards", s.Patch(t, "a", `{}`).Event(t).ResourceVersion, "7")

	answered, o = s.posting(t, "b", 1)
	o.Deferred()
	o.Settled(uncertain)
	(<-answered).Want(t, http.StatusAccepted, "")
}

func TestClientGoesOnAfterItsReportIsDeferred(t *testing.T) {
	s := serve(t, later())
	s.Post(t, classic("a", 2)).Want(t, http.StatusAccepted, "")
	s.Post(t, classic("a", 2)).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	s.Patch(t, "a", `{"count":5}`).Want(t, http.StatusAccepted, "")
	s.Patch(t, "a", `{"count":5}`).Want(t, http.StatusOK, "") // says nothing new

	s.Pipeline.WriteLater(false)
	a := s.Patch(t, "a", `{"count":6}`)
	a.Want(t, http.StatusOK, "")
	equal(t, "uid", a.Event(t).UID, "stored-uid")
	equal(t, "resourceVersion", a.Event(t).ResourceVersion, "103")
	s.Pipeline.WantWeights(t, 2, 3, 1)
	for i, want := range []int64{2, 5, 6} {
		equal(t, "total", s.Pipeline.Occurrences()[i].Total, want)
		equal(t, "client", s.Pipeline.Occurrences()[i].Client, "a")
	}
}

// Two clients that change the same view of a name do not overwrite each other,
// though nothing has a resourceVersion of the apiserver's yet.
func TestDeferredChangesConflict(t *testing.T) {
	s := serve(t, later())
	event := s.Post(t, classic("a", 1)).Event(t)
	for _, code := range []int{http.StatusAccepted, http.StatusOK, http.StatusAccepted} {
		s.Pipeline.WriteLater(code == http.StatusAccepted)
		one, other := event.DeepCopy(), event.DeepCopy()
		one.Count, other.Count = event.Count+1, event.Count+2
		a := s.Do(t, http.MethodPut, coreEvents+"/a", one)
		a.Want(t, code, "")
		s.Do(t, http.MethodPut, coreEvents+"/a", other).Want(t, http.StatusConflict, metav1.StatusReasonConflict)
		event = a.Event(t)
	}
}
