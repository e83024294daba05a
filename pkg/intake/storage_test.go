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

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestPostIsAnsweredOnceItsOccurrenceIsWritten(t *testing.T) {
	synctest.Test(t, testPostIsAnsweredOnceItsOccurrenceIsWritten)
}

func testPostIsAnsweredOnceItsOccurrenceIsWritten(t *testing.T) {
	s := serve(t, kept())
	posted := classic("web-0.1", 3)
	posted.Annotations = map[string]string{"team": "a", "eventd.io/shares": "forged", "eventd.io/identity": "forged"}
	posted.UID, posted.ResourceVersion = "mine", ""
	answered := background(func() answer { return s.post(t, posted) })

	o := <-s.pipeline.recorded
	synctest.Wait()
	select {
	case a := <-answered:
		t.Fatalf("answered before it was written: %d", a.code)
	default:
	}
	if o.Client != "web-0.1" || o.Weight != 3 || o.Total != 3 || o.API != occurrence.CoreV1 || o.Series() != identity.Of(o.Event) || o.Recorded.IsZero() {
		t.Errorf("recorded %+v", o)
	}
	want := classic("web-0.1", 3)
	want.TypeMeta = metav1.TypeMeta{}
	want.Annotations = map[string]string{"team": "a"}
	if diff := cmp.Diff(want, o.Event); diff != "" {
		t.Errorf("recorded another event (-want +got):\n%s", diff)
	}
	o.Settled(stored(occurrence.Merged, 7))

	a := <-answered
	a.want(t, http.StatusCreated, "")
	got := a.event(t)
	if got.Name != "web-0.1" || got.Count != 3 || got.UID != "stored-uid" || got.ResourceVersion != "7" ||
		got.CreationTimestamp.Unix() != 1_700_000_000 || len(got.Annotations) != 1 || got.ManagedFields != nil {
		t.Errorf("answered %+v", got)
	}
}

func TestTotalOfANewStyleEventIsThatOfItsSeries(t *testing.T) {
	s := serve(t, written())
	s.do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a")).want(t, http.StatusCreated, "")
	s.do(t, http.MethodPatch, newEvents+"/a", `{"series":{"count":5,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`).want(t, http.StatusOK, "")
	withSeries := strings.Replace(fmt.Sprintf(newStyleJSON, "b"), `"type"`, `"series":{"count":4,"lastObservedTime":"2026-01-02T03:04:06.000007Z"},"type"`, 1)
	a := s.do(t, http.MethodPost, newEvents, withSeries)
	a.want(t, http.StatusCreated, "")
	if !strings.Contains(string(a.body), `"apiVersion":"events.k8s.io/v1"`) {
		t.Errorf("answered in another version: %s", a.body)
	}
	if diff := cmp.Diff([]int64{1, 4, 4}, s.pipeline.weights()); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	for _, o := range s.pipeline.occurrences() {
		if o.API != occurrence.EventsV1 || o.Event.EventTime.IsZero() || o.Event.Message != "bound" {
			t.Errorf("recorded %+v", o)
		}
	}
}

func TestPatchReportsTheDifference(t *testing.T) {
	s := serve(t, written())
	s.post(t, classic("a", 1)).want(t, http.StatusCreated, "")
	for _, step := range []struct {
		patch             string
		count             int32
		weight, total     int64
		records, newerVer bool
	}{
		{`{"count":2,"lastTimestamp":"2026-01-02T03:04:05Z"}`, 2, 1, 2, true, true},
		{`{"count":10}`, 10, 8, 10, true, true},
		{`{"count":10}`, 10, 0, 0, false, false},       // nothing changed
		{`{}`, 10, 0, 0, false, false},                 // nothing changed
		{`{"message":"other"}`, 10, 0, 10, true, true}, // not the count
		{`{"count":4}`, 4, 0, 10, true, true},          // lowered: the view shows it
		{`{"count":9}`, 9, 0, 10, true, true},          // raised, but reported before
		{`{"count":12}`, 12, 2, 12, true, true},        // raised beyond
		{`{"metadata":{"labels":{"a":"b"}}}`, 12, 0, 12, true, true},
	} {
		before := len(s.pipeline.occurrences())
		a := s.patch(t, "a", "%s", step.patch)
		a.want(t, http.StatusOK, "")
		if got := a.event(t); got.Count != step.count || got.Name != "a" {
			t.Errorf("%s: answered %s with count %d, want %d", step.patch, got.Name, got.Count, step.count)
		}
		got := s.pipeline.occurrences()[before:]
		if (len(got) == 1) != step.records {
			t.Fatalf("%s: recorded %d occurrences", step.patch, len(got))
		}
		if step.records && (got[0].Weight != step.weight || got[0].Total != step.total || got[0].Client != "a") {
			t.Errorf("%s: recorded weight %d and total %d, want %d and %d", step.patch, got[0].Weight, got[0].Total, step.weight, step.total)
		}
	}
}

func TestIdentityStaysThatOfTheFirstPost(t *testing.T) {
	s := serve(t, written())
	s.post(t, classic("a", 1)).want(t, http.StatusCreated, "")
	a := s.patch(t, "a", `{"count":2,"message":"later","reason":"Other","involvedObject":{"name":"other"},"source":{"component":"c"}}`)
	a.want(t, http.StatusOK, "")
	if got := a.event(t); got.Reason != "Other" || got.InvolvedObject.Name != "other" {
		t.Errorf("the client does not see its change: %+v", got)
	}
	got := s.pipeline.occurrences()
	if got[0].Series() != got[1].Series() {
		t.Error("the series changed")
	}
	first, second := got[0].Event, got[1].Event.DeepCopy()
	second.Message = first.Message
	if identity.Of(first) != identity.Of(second) {
		t.Errorf("reported as another series: %+v, not %+v", second, first)
	}
	if got[1].Event.Message != "later" || got[1].Event.Count != 2 {
		t.Errorf("the change was not reported: %+v", got[1].Event)
	}
}

func TestMessageOfANewStyleEventStaysToo(t *testing.T) {
	s := serve(t, written())
	s.do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a")).want(t, 201, "")
	a := s.patch(t, "a", `{"message":"later"}`)
	a.want(t, 200, "")
	if got := a.event(t).Message; got != "later" {
		t.Errorf("the client sees %q", got)
	}
	if got := s.pipeline.occurrences()[1].Event; identity.Of(got) != identity.Of(s.pipeline.occurrences()[0].Event) {
		t.Errorf("reported as another series: %+v", got)
	}
}

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
				a.want(t, test.code, test.reason)
				if got := a.header.Get("Retry-After"); got != test.retryAfter {
					t.Errorf("Retry-After %q, want %q", got, test.retryAfter)
				}
				status := a.status(t)
				if got := status.Details; test.details != "" && (got == nil || got.Name != test.details) {
					t.Errorf("details %+v, want the name %q", got, test.details)
				}
				if strings.Contains(string(a.body), "0123") {
					t.Errorf("the stored Event's name is told: %s", a.body)
				}
			}
			check(s.post(t, classic("a", 1)))
			check(s.post(t, classic("a", 1))) // it can be tried again
			if got := len(refused.occurrences()); got != 2 {
				t.Errorf("recorded %d times, want 2", got)
			}
			s.patch(t, "a", `{"count":2}`).want(t, 404, metav1.StatusReasonNotFound) // nothing is remembered

			known := written()
			s = serve(t, known)
			s.post(t, classic("a", 1)).want(t, 201, "")
			known.mu.Lock()
			known.settle = refused.settle
			known.mu.Unlock()
			check(s.patch(t, "a", `{"count":2}`))
		})
	}
}

// Sent again it would have another name, and be counted again.
func TestClientIsNotToRepeatAnEventWithoutANameThatMayBeWritten(t *testing.T) {
	for name, test := range map[string]struct {
		settlement occurrence.Settlement
		code       int
		reason     metav1.StatusReason
		retryAfter string
	}{
		"uncertain": {occurrence.Settlement{Outcome: occurrence.Uncertain, Err: context.DeadlineExceeded}, 504, metav1.StatusReasonTimeout, ""},
		"retries exhausted": {occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.RetriesExhausted, Err: errors.New("no connection")},
			503, metav1.StatusReasonServiceUnavailable, "1"},
		"shutdown":   {occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown}, 503, metav1.StatusReasonServiceUnavailable, "1"},
		"queue full": {occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull}, 429, metav1.StatusReasonTooManyRequests, "1"},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, settled(test.settlement))
			unnamed := classic("", 1)
			unnamed.GenerateName = "a-"
			newStyle := strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)
			for _, a := range []answer{s.post(t, unnamed), s.do(t, http.MethodPost, newEvents, newStyle)} {
				a.want(t, test.code, test.reason)
				if got := a.header.Get("Retry-After"); got != test.retryAfter {
					t.Errorf("Retry-After %q, want %q", got, test.retryAfter)
				}
			}
			if got := len(s.pipeline.occurrences()); got != 2 {
				t.Errorf("recorded %d times, want 2", got)
			}
		})
	}
}

func TestViewStaysWhatItWasWhenAReportIsNotWritten(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.post(t, classic("a", 1)).want(t, 201, "")
	ok := p.settle
	p.settle = settled(occurrence.Settlement{Outcome: occurrence.Uncertain}).settle
	s.patch(t, "a", `{"count":5}`).want(t, 503, metav1.StatusReasonServiceUnavailable)
	p.settle = ok
	s.patch(t, "a", `{"count":5}`).want(t, 200, "")
	if diff := cmp.Diff([]int64{1, 4, 4}, p.weights()); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
}

func TestEventThatExpiredCanBePostedAgain(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.post(t, classic("a", 1)).want(t, 201, "")
	ok := p.settle
	p.settle = settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Refused,
		Err: apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, "web-0.0123")}).settle
	s.patch(t, "a", `{"message":"other"}`).want(t, 404, metav1.StatusReasonNotFound)
	p.settle = ok
	s.post(t, classic("a", 2)).want(t, 201, "")
}

func TestRepeatedPostJoinsThePendingOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		first := background(func() answer { return s.post(t, classic("a", 2)) })
		o := <-s.pipeline.recorded
		var retries []<-chan answer
		for range 3 {
			retries = append(retries, background(func() answer { return s.post(t, classic("a", 2)) }))
		}
		// Another Event under the same name is not what is pending.
		another := classic("a", 3)
		another.Reason = "Stopped"
		other := background(func() answer { return s.post(t, another) })
		synctest.Wait()
		o.Settled(stored(occurrence.Created, 9))
		for _, answered := range append(retries, first) {
			a := <-answered
			a.want(t, http.StatusCreated, "")
			if got := a.event(t); got.Count != 2 || got.ResourceVersion != "9" {
				t.Errorf("answered %+v", got)
			}
		}
		a := <-other
		a.want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		if got := len(s.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
	})
}

func TestPostOfAKnownNameIsRefused(t *testing.T) {
	s := serve(t, written())
	s.post(t, classic("a", 1)).want(t, 201, "")
	a := s.post(t, classic("a", 1))
	a.want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	if got := a.status(t).Details; got.Name != "a" || got.Kind != "events" || got.Group != "" {
		t.Errorf("details %+v", got)
	}
	a = s.do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a"))
	a.want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	if got := a.status(t).Details; got.Name != "a" || got.Kind != "events" || got.Group != "events.k8s.io" {
		t.Errorf("details %+v", got)
	}
	if got := len(s.pipeline.occurrences()); got != 1 {
		t.Errorf("recorded %d times", got)
	}
}

func TestReplayedPostIsRefusedAndRemembered(t *testing.T) {
	p := settled(stored(occurrence.Replayed, 5))
	s := serve(t, p)
	s.post(t, classic("a", 4)).want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	a := s.patch(t, "a", `{"count":6}`) // replayed as well, but that counts as written
	a.want(t, http.StatusOK, "")
	if got := a.event(t); got.Count != 6 {
		t.Errorf("answered with count %d", got.Count)
	}
	if diff := cmp.Diff([]int64{4, 2}, p.weights()); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
}

func TestOccurrenceOutlivesItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		request := func(method, path string, body any) (giveUp func()) {
			ctx, cancel := context.WithCancel(t.Context())
			answered := background(func() answer { return s.doUntil(ctx, t, method, path, body) })
			return func() { cancel(); <-answered }
		}
		giveUp := request(http.MethodPost, coreEvents, classic("a", 1))
		post := <-s.pipeline.recorded
		giveUp()
		giveUp = request(http.MethodPatch, coreEvents+"/a", `{"count":2}`)
		raise := <-s.pipeline.recorded
		giveUp()
		post.Settled(stored(occurrence.Created, 1))
		raise.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull})

		giveUp = request(http.MethodPatch, coreEvents+"/a", `{"count":3}`)
		patch := <-s.pipeline.recorded
		giveUp()
		patch.Settled(stored(occurrence.Merged, 2))

		a := s.patch(t, "a", `{"count":3}`) // the client's retry
		a.want(t, 200, "")
		if got := a.event(t); got.ResourceVersion != "2" {
			t.Errorf("answered %+v", got)
		}
		if diff := cmp.Diff([]int64{1, 2, 2}, s.pipeline.weights()); diff != "" {
			t.Errorf("weights (-want +got):\n%s", diff)
		}
	})
}

func TestRequestEndsAtItsTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		timesOut := func(after time.Duration, method, path string, body any) {
			t.Helper()
			begun := time.Now()
			s.do(t, method, path, body).want(t, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
			if took := time.Since(begun); took != after-100*time.Millisecond {
				t.Errorf("answered after %v, not just before %v", took, after)
			}
		}
		timesOut(5*time.Second, http.MethodPost, coreEvents+"?timeout=5s", classic("a", 1))
		timesOut(34*time.Second, http.MethodPost, coreEvents, classic("a", 1))
		timesOut(34*time.Second, http.MethodPatch, coreEvents+"/a", `{}`)
		(<-s.pipeline.recorded).Settled(stored(occurrence.Created, 1))
		s.patch(t, "a", `{}`).want(t, 200, "")
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

func TestPut(t *testing.T) {
	s := serve(t, written())
	put := func(event *corev1.Event) answer {
		return s.do(t, http.MethodPut, coreEvents+"/"+event.Name, event)
	}
	a := put(classic("a", 2))
	a.want(t, http.StatusCreated, "")
	created := a.event(t)
	put(classic("a", 2)).want(t, http.StatusOK, "") // unchanged

	changed := created.DeepCopy()
	changed.Count = 5
	changed.Annotations = map[string]string{"eventd.io/shares": "forged"}
	a = put(changed)
	a.want(t, http.StatusOK, "")
	if got := a.event(t); got.Count != 5 || got.ResourceVersion == created.ResourceVersion || got.Annotations != nil {
		t.Errorf("answered %+v", got)
	}
	put(changed).want(t, http.StatusConflict, metav1.StatusReasonConflict) // an old resourceVersion
	changed.ResourceVersion, changed.UID = "", "another"
	put(changed).want(t, http.StatusConflict, metav1.StatusReasonConflict)
	changed.Name = "b"
	put(changed).want(t, http.StatusConflict, metav1.StatusReasonConflict) // a uid, but no such name
	if diff := cmp.Diff([]int64{2, 3}, s.pipeline.weights()); diff != "" {
		t.Errorf("weights (-want +got):\n%s", diff)
	}
	for _, o := range s.pipeline.occurrences() {
		if o.Event.UID != "" || o.Event.ResourceVersion != "" || len(o.Event.Annotations) != 0 {
			t.Errorf("recorded %+v", o.Event.ObjectMeta)
		}
	}
}

func TestDryRunRecordsNothing(t *testing.T) {
	s := serve(t, written())
	a := s.do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 3))
	a.want(t, http.StatusCreated, "")
	if got := a.event(t); got.UID == "" || got.Count != 3 {
		t.Errorf("answered %+v", got)
	}
	s.patch(t, "a", `{}`).want(t, 404, metav1.StatusReasonNotFound)
	s.do(t, http.MethodPut, coreEvents+"/a?dryRun=All", classic("a", 3)).want(t, http.StatusCreated, "")

	s.post(t, classic("a", 1)).want(t, 201, "")
	s.do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 3)).want(t, 409, metav1.StatusReasonAlreadyExists)
	a = s.do(t, http.MethodPatch, coreEvents+"/a?dryRun=All", `{"count":9}`)
	a.want(t, 200, "")
	if got := a.event(t); got.Count != 9 {
		t.Errorf("answered count %d", got.Count)
	}
	if got := s.patch(t, "a", `{}`).event(t); got.Count != 1 {
		t.Errorf("a dry run changed the count to %d", got.Count)
	}
	if got := len(s.pipeline.occurrences()); got != 1 {
		t.Errorf("recorded %d times", got)
	}
}

func TestGeneratedNames(t *testing.T) {
	s := serve(t, written())
	names := make(map[string]bool)
	for range 20 {
		event := classic("", 1)
		event.GenerateName = "web-0."
		a := s.post(t, event)
		a.want(t, 201, "")
		name := a.event(t).Name
		if !strings.HasPrefix(name, "web-0.") || names[name] {
			t.Fatalf("name %q after %v", name, names)
		}
		names[name] = true
	}
	for _, o := range s.pipeline.occurrences() {
		if !names[o.Client] {
			t.Errorf("recorded for the client %q", o.Client)
		}
	}
}

func TestViewsAreBounded(t *testing.T) {
	t.Run("in number", func(t *testing.T) {
		s := serve(t, written(), func(o *intake.Options, _ *intake.ServerOptions) { o.MaxNames = 2 })
		for _, name := range []string{"a", "b", "c"} {
			s.post(t, classic(name, 1)).want(t, 201, "")
		}
		s.patch(t, "a", `{"count":2}`).want(t, 404, metav1.StatusReasonNotFound)
		s.patch(t, "b", `{"count":2}`).want(t, 200, "")
		s.post(t, classic("a", 2)).want(t, 201, "") // as client-go does then, and c makes room
		s.patch(t, "b", `{"count":3}`).want(t, 200, "")
		s.patch(t, "c", `{"count":2}`).want(t, 404, metav1.StatusReasonNotFound)
	})
	t.Run("in size", func(t *testing.T) {
		s := serve(t, written(), func(o *intake.Options, _ *intake.ServerOptions) { o.MaxViewBytes = 40 << 10 })
		large := func(name string) *corev1.Event {
			event := classic(name, 1)
			event.Message = strings.Repeat("x", 9<<10)
			return event
		}
		s.post(t, large("a")).want(t, 201, "")
		s.post(t, large("b")).want(t, 201, "")
		s.patch(t, "a", `{"message":"short now"}`).want(t, 200, "")
		s.post(t, large("c")).want(t, 201, "") // more than fits, so b goes
		s.patch(t, "b", `{}`).want(t, 404, metav1.StatusReasonNotFound)
		s.patch(t, "a", `{}`).want(t, 200, "")
		s.patch(t, "c", `{}`).want(t, 200, "")
	})
}

func TestPanicWhileRecordingIsAnswered(t *testing.T) {
	p := written()
	ok := p.settle
	p.settle = func(*occurrence.Occurrence) (occurrence.Settlement, bool) { panic("recording") }
	s := serve(t, p, func(o *intake.Options, _ *intake.ServerOptions) {
		record := o.Record
		o.Record = func(occurred *occurrence.Occurrence) {
			defer func() {
				if r := recover(); r != nil {
					p.mu.Unlock() // the fake's own
					panic(r)
				}
			}()
			record(occurred)
		}
	})
	s.post(t, classic("a", 1)).want(t, 500, metav1.StatusReasonInternalError)
	p.settle = ok
	s.post(t, classic("a", 1)).want(t, 201, "") // the name is free again
	s.post(t, classic("b", 1)).want(t, 201, "")
}

func TestStoredObjectMayBeMissing(t *testing.T) {
	s := serve(t, settled(occurrence.Settlement{Outcome: occurrence.Aggregated}))
	a := s.post(t, classic("a", 1))
	a.want(t, 201, "")
	if got := a.event(t); got.UID == "" || got.ResourceVersion == "" || got.CreationTimestamp.IsZero() {
		t.Errorf("answered %+v", got.ObjectMeta)
	}
	s.patch(t, "a", `{"count":2}`).want(t, 200, "")
}

func TestOnlyTheFirstSettlementCounts(t *testing.T) {
	s := serve(t, kept())
	answered := background(func() answer { return s.post(t, classic("a", 1)) })
	o := <-s.pipeline.recorded
	o.Settled(stored(occurrence.Created, 1))
	o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.Shutdown}) // another sink's
	o.Settled(stored(occurrence.Merged, 2))
	a := <-answered
	a.want(t, 201, "")
	if got := s.patch(t, "a", `{}`).event(t).ResourceVersion; got != "1" {
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
	p.settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
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
					a := s.patch(t, event.Name, `{"count":%d}`, count)
					if a.code == 404 {
						a = s.post(t, event)
					}
					if a.code == 200 || a.code == 201 {
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

// background calls a function and returns where its answer will be.
func background(call func() answer) <-chan answer {
	out := make(chan answer, 1)
	go func() { out <- call() }()
	return out
}
