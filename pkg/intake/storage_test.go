package intake_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestPostIsAnsweredOnceItsOccurrenceIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		sent := classic("web-0.1", 3)
		sent.Annotations = map[string]string{"team": "a", "eventd.io/shares": "forged", "eventd.io/identity": "forged"}
		sent.UID, sent.Generation = "mine", 7
		answered, o := s.pending(func() answer { return s.Post(t, sent) })
		synctest.Wait()
		equal(t, "answers before it is written", len(answered), 0)
		equal(t, "requests that work", s.Intake.Working(), 1)
		if o.Client != "web-0.1" || o.Weight != 3 || o.Total != 3 || o.API != occurrence.CoreV1 || o.Series() != identity.Of(o.Event) || o.Recorded.IsZero() {
			t.Errorf("recorded %+v", o)
		}
		want := classic("web-0.1", 3)
		want.TypeMeta = metav1.TypeMeta{}
		want.Annotations = map[string]string{"team": "a"}
		equal(t, "recorded", o.Event, want)

		o.Settled(stored(occurrence.Merged, 7))
		a := <-answered
		a.Want(t, http.StatusCreated, "")
		want = classic("web-0.1", 3)
		want.Annotations = map[string]string{"team": "a"}
		want.UID, want.Generation, want.ResourceVersion, want.CreationTimestamp = "stored-uid", 7, "7", metav1.Unix(1_700_000_000, 0)
		equal(t, "answered", a.Event(t), want)
	})
}

func TestTotalOfANewStyleEventIsThatOfItsSeries(t *testing.T) {
	const series = `"series":{"count":5,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}`
	s := serve(t, written())
	s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a")).Want(t, http.StatusCreated, "")
	s.Do(t, http.MethodPatch, newEvents+"/a", "{"+series+"}").Want(t, http.StatusOK, "")
	withSeries := strings.Replace(fmt.Sprintf(newStyleJSON, "b"), `"type"`, series+`,"type"`, 1)
	a := s.Do(t, http.MethodPost, newEvents, withSeries)
	a.Want(t, http.StatusCreated, "")
	equal(t, "version of the answer", a.Event(t).APIVersion, "events.k8s.io/v1")
	s.Pipeline.WantWeights(t, 1, 4, 5)
	for _, o := range s.Pipeline.Occurrences() {
		if o.API != occurrence.EventsV1 || o.Event.EventTime.IsZero() || o.Event.Message != "bound" {
			t.Errorf("recorded %+v", o)
		}
	}
}

func TestPatchReportsTheDifference(t *testing.T) {
	s := serve(t, written())
	s.Post(t, classic("a", 1)).Want(t, http.StatusCreated, "")
	type reported struct{ weight, total int64 }
	for _, step := range []struct {
		patch string
		count int32
		want  []reported
	}{
		{`{"count":2,"lastTimestamp":"2026-01-02T03:04:05Z"}`, 2, []reported{{1, 2}}},
		{`{"count":10}`, 10, []reported{{8, 10}}},
		{`{"count":10}`, 10, nil}, // nothing changed
		{`{}`, 10, nil},
		{`{"message":"other"}`, 10, []reported{{0, 10}}}, // not the count
		{`{"count":4}`, 4, []reported{{0, 10}}},          // lowered: the view shows it
		{`{"count":9}`, 9, []reported{{0, 10}}},          // raised, but reported before
		{`{"count":12}`, 12, []reported{{2, 12}}},        // raised beyond
		{`{"metadata":{"labels":{"a":"b"}}}`, 12, []reported{{0, 12}}},
		{`{"count":null}`, 0, []reported{{0, 12}}},
		{`{"series":{"count":15}}`, 0, []reported{{3, 15}}}, // which kubectl shows, whatever the style
		{`{"count":14}`, 14, []reported{{0, 15}}},
		{`{"series":null}`, 14, []reported{{0, 15}}},
		{`{"count":16}`, 16, []reported{{1, 16}}},
	} {
		before := len(s.Pipeline.Occurrences())
		a := s.Patch(t, "a", "%s", step.patch)
		a.Want(t, http.StatusOK, "")
		equal(t, step.patch+": name", a.Event(t).Name, "a")
		equal(t, step.patch+": count", a.Event(t).Count, step.count)
		var got []reported
		for _, o := range s.Pipeline.Occurrences()[before:] {
			got = append(got, reported{o.Weight, o.Total})
			equal(t, step.patch+": client", o.Client, "a")
		}
		equal(t, step.patch+": weight and total", got, step.want)
	}
}

// The message is a part of the identity of a new-style Event only.
func TestIdentityStaysThatOfTheFirstPost(t *testing.T) {
	const other = `{"message":"later","reason":"Other","involvedObject":{"name":"other"},"source":{"component":"c"},` +
		`"type":"Warning","reportingComponent":"c","reportingInstance":"i"}`
	for path, test := range map[string]struct{ body, patch, message string }{
		coreEvents: {string(must(json.Marshal(classic("a", 1)))), other, "later"},
		newEvents:  {fmt.Sprintf(newStyleJSON, "a"), `{"message":"later"}`, "bound"},
	} {
		s := serve(t, written())
		s.Do(t, http.MethodPost, path, test.body).Want(t, http.StatusCreated, "")
		a := s.Patch(t, "a", "%s", test.patch)
		a.Want(t, http.StatusOK, "")
		event := a.Event(t)
		equal(t, "message for the client", event.Message, "later")
		if path == coreEvents && (event.Reason != "Other" || event.InvolvedObject.Name != "other") {
			t.Errorf("the client does not see its change: %+v", event)
		}
		first, second := s.Pipeline.Occurrences()[0], s.Pipeline.Occurrences()[1]
		equal(t, "series", second.Series(), first.Series())
		equal(t, "message that is reported", second.Event.Message, test.message)
		changed := second.Event.DeepCopy()
		changed.Message = first.Event.Message
		equal(t, "identity", identity.Of(changed), identity.Of(first.Event))
	}
}

func TestRepeatedPostJoinsThePendingOne(t *testing.T) {
	for code, settle := range map[int]func(*occurrence.Occurrence){http.StatusCreated: write, http.StatusAccepted: deferIt} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, kept())
			first, o := s.posting(t, "a", 2)
			answers := []<-chan answer{first}
			for range 3 {
				answers = append(answers, background(func() answer { return s.Post(t, classic("a", 2)) }))
			}
			another := classic("a", 3) // of the same name, which does not join
			another.Reason = "Stopped"
			other := background(func() answer { return s.Post(t, another) })
			synctest.Wait()
			settle(o)
			for _, answered := range answers {
				a := <-answered
				a.Want(t, code, "")
				got := a.Event(t)
				equal(t, "name", got.Name, "a")
				equal(t, "count", got.Count, 2)
				if code == http.StatusCreated {
					equal(t, "resourceVersion", got.ResourceVersion, "2")
				}
			}
			(<-other).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
			s.Pipeline.WantRecorded(t, 1)
		})
	}
}

func TestPostOfAKnownNameIsRefused(t *testing.T) {
	s := serve(t, written())
	s.Post(t, classic("a", 1)).Want(t, 201, "")
	for group, a := range map[string]answer{
		"":              s.Post(t, classic("a", 1)),
		"events.k8s.io": s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a")),
	} {
		a.Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
		equal(t, "details", *a.Status(t).Details, metav1.StatusDetails{Name: "a", Kind: "events", Group: group})
	}
	s.Pipeline.WantRecorded(t, 1)
}

func TestPut(t *testing.T) {
	s := serve(t, written())
	put := func(event *corev1.Event) answer {
		return s.Do(t, http.MethodPut, coreEvents+"/"+event.Name, event)
	}
	a := put(classic("a", 2))
	a.Want(t, http.StatusCreated, "")
	created := a.Event(t)
	equal(t, "Cache-Control", a.Header.Get("Cache-Control"), "no-cache, private")
	put(classic("a", 2)).Want(t, http.StatusOK, "") // unchanged

	changed := created.DeepCopy()
	changed.Count = 5
	changed.Annotations = map[string]string{"eventd.io/shares": "forged"}
	a = put(changed)
	a.Want(t, http.StatusOK, "")
	if got := a.Event(t); got.Count != 5 || got.ResourceVersion == created.ResourceVersion || got.Annotations != nil {
		t.Errorf("answered %+v", got)
	}
	put(changed).Want(t, http.StatusConflict, metav1.StatusReasonConflict) // an old resourceVersion
	changed.ResourceVersion, changed.UID = "", "another"
	put(changed).Want(t, http.StatusConflict, metav1.StatusReasonConflict)
	changed.Name = "b"
	put(changed).Want(t, http.StatusConflict, metav1.StatusReasonConflict) // a uid, but no such name
	s.Pipeline.WantWeights(t, 2, 3)
	for _, o := range s.Pipeline.Occurrences() {
		if o.Event.UID != "" || o.Event.ResourceVersion != "" || len(o.Event.Annotations) != 0 {
			t.Errorf("recorded %+v", o.Event.ObjectMeta)
		}
	}
}

func TestDryRunRecordsNothing(t *testing.T) {
	for code, p := range map[int]*fakePipeline{http.StatusCreated: written(), http.StatusAccepted: later()} {
		s := serve(t, p)
		a := s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 3))
		a.Want(t, http.StatusCreated, "")
		if got := a.Event(t); got.UID == "" || got.Count != 3 {
			t.Errorf("answered %+v", got)
		}
		s.Patch(t, "a", `{}`).Want(t, 404, metav1.StatusReasonNotFound)
		s.Do(t, http.MethodPut, coreEvents+"/a?dryRun=All", classic("a", 3)).Want(t, http.StatusCreated, "")

		s.Post(t, classic("a", 1)).Want(t, code, "")
		s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 3)).Want(t, 409, metav1.StatusReasonAlreadyExists)
		s.Do(t, http.MethodPut, coreEvents+"/a?dryRun=All", classic("a", 3)).Want(t, http.StatusOK, "")
		a = s.Do(t, http.MethodPatch, coreEvents+"/a?dryRun=All", `{"count":9}`)
		a.Want(t, http.StatusOK, "")
		equal(t, "count", a.Event(t).Count, 9)
		equal(t, "count afterwards", s.Patch(t, "a", `{}`).Event(t).Count, 1)
		p.WantRecorded(t, 1)
	}
}

func TestViewsAreBounded(t *testing.T) {
	t.Run("in number", func(t *testing.T) {
		s := serve(t, written(), withOptions(func(o *intake.Options) { o.MaxNames = 2 }))
		for _, name := range []string{"a", "b", "c"} {
			s.Post(t, classic(name, 1)).Want(t, 201, "")
		}
		s.Patch(t, "a", `{"count":2}`).Want(t, 404, metav1.StatusReasonNotFound)
		s.Patch(t, "b", `{"count":2}`).Want(t, 200, "")
		s.Post(t, classic("a", 2)).Want(t, 201, "") // as client-go does then, and c makes room
		s.Patch(t, "b", `{"count":3}`).Want(t, 200, "")
		s.Patch(t, "c", `{"count":2}`).Want(t, 404, metav1.StatusReasonNotFound)
	})
	t.Run("in size", func(t *testing.T) {
		s := serve(t, written(), withOptions(func(o *intake.Options) { o.MaxViewBytes = 40 << 10 }))
		s.Post(t, withMessage("a", 9<<10)).Want(t, 201, "")
		s.Post(t, withMessage("b", 9<<10)).Want(t, 201, "")
		s.Patch(t, "a", `{"message":"short now"}`).Want(t, 200, "")
		s.Post(t, withMessage("c", 9<<10)).Want(t, 201, "") // more than fits, so b goes
		s.Patch(t, "b", `{}`).Want(t, 404, metav1.StatusReasonNotFound)
		s.Patch(t, "a", `{}`).Want(t, 200, "")
		s.Patch(t, "c", `{}`).Want(t, 200, "")
	})
}

// withMessage returns an Event with a message of some length.
func withMessage(name string, length int) *corev1.Event {
	event := classic(name, 1)
	event.Message = strings.Repeat("x", length)
	return event
}
