package intake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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

func TestAnswersFollowWhatBecameOfTheOccurrence(t *testing.T) {
	derived := schema.GroupResource{Resource: "events"}
	dropped := func(reason occurrence.Reason, err error) occurrence.Settlement {
		return occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}
	}
	terminating := apierrors.NewForbidden(derived, "web-0.0123", errors.New(`unable to create new content in namespace ns because it is being terminated`))
	for name, test := range map[string]struct {
		settlement occurrence.Settlement
		code       int
		reason     metav1.StatusReason
		retryAfter string
		details    string // the name in them
	}{
		"queue full":        {dropped(occurrence.QueueFull, nil), 429, metav1.StatusReasonTooManyRequests, "1", ""},
		"pending full":      {dropped(occurrence.PendingFull, nil), 429, metav1.StatusReasonTooManyRequests, "1", ""},
		"budget spent":      {dropped(occurrence.BudgetSpent, nil), 429, metav1.StatusReasonTooManyRequests, "", ""},
		"shutdown":          {dropped(occurrence.Shutdown, nil), 503, metav1.StatusReasonServiceUnavailable, "1", ""},
		"no sink":           {dropped(occurrence.NoSink, nil), 503, metav1.StatusReasonServiceUnavailable, "1", ""},
		"retries exhausted": {dropped(occurrence.RetriesExhausted, errors.New("no connection")), 503, metav1.StatusReasonServiceUnavailable, "1", ""},
		"uncertain":         {occurrence.Settlement{Outcome: occurrence.Uncertain, Err: context.DeadlineExceeded}, 503, metav1.StatusReasonServiceUnavailable, "1", ""},
		"no namespace": {dropped(occurrence.NamespaceNotFound, apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, "ns")),
			404, metav1.StatusReasonNotFound, "", "ns"},
		"terminating":            {dropped(occurrence.NamespaceTerminating, fmt.Errorf("writing: %w", terminating)), 403, metav1.StatusReasonForbidden, "", "a"},
		"invalid":                {dropped(occurrence.Invalid, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "web-0.0123", nil)), 422, metav1.StatusReasonInvalid, "", "a"},
		"gone":                   {dropped(occurrence.Refused, apierrors.NewNotFound(derived, "web-0.0123")), 404, metav1.StatusReasonNotFound, "", "a"},
		"eventd is unauthorized": {dropped(occurrence.Refused, apierrors.NewUnauthorized("Unauthorized")), 503, metav1.StatusReasonServiceUnavailable, "1", ""},
		"refused":                {dropped(occurrence.Refused, nil), 500, metav1.StatusReasonInternalError, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			refused := settled(test.settlement)
			s := serve(t, refused)
			check := func(a answer) {
				t.Helper()
				a.Want(t, test.code, test.reason)
				if got := a.Header.Get("Retry-After"); got != test.retryAfter {
					t.Errorf("Retry-After %q, want %q", got, test.retryAfter)
				}
				status := a.Status(t)
				if got := status.Details; test.details != "" && (got == nil || got.Name != test.details) {
					t.Errorf("details %+v, want the name %q", got, test.details)
				}
				if strings.Contains(string(a.Body), "0123") {
					t.Errorf("the stored Event's name is in the response: %s", a.Body)
				}
			}
			check(s.Post(t, classic("a", 1)))
			check(s.Post(t, classic("a", 1))) // it can be tried again
			refused.WantRecorded(t, 2)
			s.Patch(t, "a", `{"count":2}`).Want(t, 404, metav1.StatusReasonNotFound) // nothing is remembered

			known := written()
			s = serve(t, known)
			s.Post(t, classic("a", 1)).Want(t, 201, "")
			known.Mu.Lock()
			known.Settle = refused.Settle
			known.Mu.Unlock()
			check(s.Patch(t, "a", `{"count":2}`))

			// If an Event without a name may be written, the client must not send it again:
			// it would have another name, and be counted twice.
			if name == "uncertain" {
				test.code, test.reason, test.retryAfter = 504, metav1.StatusReasonTimeout, ""
			}
			if test.details == "a" {
				test.details = "" // it is generated
			}
			s = serve(t, refused)
			unnamed := classic("", 1)
			unnamed.GenerateName = "a-"
			check(s.Post(t, unnamed))
			check(s.Do(t, http.MethodPost, newEvents, strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)))
			refused.WantRecorded(t, 4)
		})
	}
}

func TestViewStaysWhatItWasWhenAReportIsNotWritten(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.Post(t, classic("a", 1)).Want(t, 201, "")
	ok := p.Settle
	p.Settle = settled(occurrence.Settlement{Outcome: occurrence.Uncertain}).Settle
	s.Patch(t, "a", `{"count":5}`).Want(t, 503, metav1.StatusReasonServiceUnavailable)
	p.Settle = ok
	s.Patch(t, "a", `{"count":5}`).Want(t, 200, "")
	p.WantWeights(t, 1, 4, 4)
}

func TestEventThatExpiredCanBePostedAgain(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.Post(t, classic("a", 1)).Want(t, 201, "")
	ok := p.Settle
	p.Settle = settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Refused,
		Err: apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "web-0.0123")}).Settle
	s.Patch(t, "a", `{"message":"other"}`).Want(t, 404, metav1.StatusReasonNotFound)
	p.Settle = ok
	s.Post(t, classic("a", 2)).Want(t, 201, "")
}

func TestReplayedPostIsRefusedAndRemembered(t *testing.T) {
	p := settled(stored(occurrence.Replayed, 5))
	s := serve(t, p)
	s.Post(t, classic("a", 4)).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	a := s.Patch(t, "a", `{"count":6}`) // replayed as well, but that counts as written
	a.Want(t, http.StatusOK, "")
	if got := a.Event(t); got.Count != 6 {
		t.Errorf("answered with count %d", got.Count)
	}
	p.WantWeights(t, 4, 2)
}

func TestOccurrenceOutlivesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		request := func(method, path string, body any) (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			answered := background(func() answer { return s.DoUntil(ctx, t, method, path, body) })
			return func() { cancel(); <-answered }
		}
		giveUp := request(http.MethodPost, coreEvents, classic("a", 1))
		post := <-s.Pipeline.Recorded
		giveUp()
		giveUp = request(http.MethodPatch, coreEvents+"/a", `{"count":2}`)
		raise := <-s.Pipeline.Recorded
		giveUp()
		post.Settled(stored(occurrence.Created, 1))
		raise.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull})

		giveUp = request(http.MethodPatch, coreEvents+"/a", `{"count":3}`)
		patch := <-s.Pipeline.Recorded
		giveUp()
		patch.Settled(stored(occurrence.Merged, 2))

		a := s.Patch(t, "a", `{"count":3}`) // the client's retry
		a.Want(t, 200, "")
		if got := a.Event(t); got.ResourceVersion != "2" {
			t.Errorf("answered %+v", got)
		}
		s.Pipeline.WantWeights(t, 1, 2, 2)
	})
}

func TestRequestEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		timesOut := func(after time.Duration, method, path string, body any) {
			t.Helper()
			begun := time.Now()
			s.Do(t, method, path, body).Want(t, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			if took := time.Since(begun); took != after-100*time.Millisecond {
				t.Errorf("answered after %v, not just before %v", took, after)
			}
		}
		timesOut(5*time.Second, http.MethodPost, coreEvents+"?timeout=5s", classic("a", 1))
		timesOut(34*time.Second, http.MethodPost, coreEvents, classic("a", 1))
		timesOut(34*time.Second, http.MethodPatch, coreEvents+"/a", `{}`)
		(<-s.Pipeline.Recorded).Settled(stored(occurrence.Created, 1))
		s.Patch(t, "a", `{}`).Want(t, 200, "")
	})
}

func TestBodyThatDoesNotComeIsAbandoned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written())
		body, end := io.Pipe()
		req := newRequest(t.Context(), t, http.MethodPost, coreEvents, "")
		req.Body = body
		recorder := httptest.NewRecorder()
		begun := time.Now()
		s.ServeHTTP(recorder, req)
		if took := time.Since(begun); recorder.Code != http.StatusGatewayTimeout || took != 65*time.Second {
			t.Errorf("answered %d after %v", recorder.Code, took)
		}
		end.Close()
	})
}

func TestPanicWhileRecordingIsAnswered(t *testing.T) {
	p := written()
	ok := p.Settle
	p.Settle = func(*occurrence.Occurrence) (occurrence.Settlement, bool) { panic("recording") }
	s := serve(t, p, func(o *intake.Options, _ *intake.ServerOptions) {
		record := o.Record
		o.Record = func(occurred *occurrence.Occurrence) {
			defer func() {
				if r := recover(); r != nil {
					p.Mu.Unlock() // the fake's own
					panic(r)
				}
			}()
			record(occurred)
		}
	})
	s.Post(t, classic("a", 1)).Want(t, 500, metav1.StatusReasonInternalError)
	p.Settle = ok
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

func TestOnlyTheFirstSettlementCounts(t *testing.T) {
	s := serve(t, kept())
	answered := background(func() answer { return s.Post(t, classic("a", 1)) })
	o := <-s.Pipeline.Recorded
	o.Settled(stored(occurrence.Created, 1))
	o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown}) // another sink's
	o.Settled(stored(occurrence.Merged, 2))
	a := <-answered
	a.Want(t, 201, "")
	if got := s.Patch(t, "a", `{}`).Event(t).ResourceVersion; got != "1" {
		t.Errorf("resourceVersion %s", got)
	}
}

// TestEveryRaiseIsReportedOnce lets many clients of few names raise their
// counts at once, while reports are lost, replayed, refused and forgotten. What
// was written of a name must cover what it was raised to.
func TestEveryRaiseIsReportedOnce(t *testing.T) {
	const clients, names, raises = 8, 3, 30
	covered := make(map[string]int64) // by name, as the sink's named shares do
	var sum int64
	p := written()
	n := 0
	p.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
		n++
		switch n % 5 {
		case 0:
			return occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull}, true
		case 1:
			return occurrence.Settlement{Outcome: occurrence.Uncertain}, true
		}
		added := o.Total - max(covered[o.Client], o.Total-o.Weight)
		if added > 0 {
			sum += added
		}
		covered[o.Client] = max(covered[o.Client], o.Total)
		return stored(occurrence.Merged, n), true
	}
	s := serve(t, p, func(o *intake.Options, _ *intake.ServerOptions) { o.MaxNames = 2 })

	var reached [names]int32
	var mu sync.Mutex
	var wg sync.WaitGroup
	for c := range clients {
		name := c % names
		wg.Go(func() {
			for range raises {
				mu.Lock()
				reached[name]++
				count := reached[name]
				mu.Unlock()
				event := classic(fmt.Sprintf("n%d", name), count)
				for {
					// As client-go: patch, and post if there is nothing to patch.
					a := s.Patch(t, event.Name, `{"count":%d}`, count)
					if a.Code == 404 {
						a = s.Post(t, event)
					}
					if a.Code == 200 || a.Code == 201 {
						break
					}
				}
			}
		})
	}
	wg.Wait()
	var want int64
	for name := range names {
		want += int64(reached[name])
		if got := covered[fmt.Sprintf("n%d", name)]; got != int64(reached[name]) {
			t.Errorf("name %d reached %d, but %d is written", name, reached[name], got)
		}
	}
	if sum != want {
		t.Errorf("%d were reported and %d counted", want, sum)
	}
}
