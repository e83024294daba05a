package intake_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestPostIsAnsweredOnceItsOccurrenceIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		posted := classic("web-0.1", 3)
		posted.Annotations = map[string]string{"team": "a", "eventd.io/shares": "forged", "eventd.io/identity": "forged"}
		posted.UID, posted.ResourceVersion = "mine", ""
		answered := background(func() answer { return s.Post(t, posted) })

		o := <-s.Pipeline.Recorded
		synctest.Wait()
		select {
		case a := <-answered:
			t.Fatalf("answered before it was written: %d", a.Code)
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
		a.Want(t, http.StatusCreated, "")
		got := a.Event(t)
		if got.Name != "web-0.1" || got.Count != 3 || got.UID != "stored-uid" || got.ResourceVersion != "7" ||
			got.CreationTimestamp.Unix() != 1_700_000_000 || len(got.Annotations) != 1 || got.ManagedFields != nil {
			t.Errorf("answered %+v", got)
		}
	})
}

func TestTotalOfANewStyleEventIsThatOfItsSeries(t *testing.T) {
	s := serve(t, written())
	s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a")).Want(t, http.StatusCreated, "")
	s.Do(t, http.MethodPatch, newEvents+"/a", `{"series":{"count":5,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`).Want(t, http.StatusOK, "")
	withSeries := strings.Replace(fmt.Sprintf(newStyleJSON, "b"), `"type"`, `"series":{"count":4,"lastObservedTime":"2026-01-02T03:04:06.000007Z"},"type"`, 1)
	a := s.Do(t, http.MethodPost, newEvents, withSeries)
	a.Want(t, http.StatusCreated, "")
	if !strings.Contains(string(a.Body), `"apiVersion":"events.k8s.io/v1"`) {
		t.Errorf("answered in another version: %s", a.Body)
	}
	s.Pipeline.WantWeights(t, 1, 4, 4)
	for _, o := range s.Pipeline.Occurrences() {
		if o.API != occurrence.EventsV1 || o.Event.EventTime.IsZero() || o.Event.Message != "bound" {
			t.Errorf("recorded %+v", o)
		}
	}
}

func TestPatchReportsTheDifference(t *testing.T) {
	s := serve(t, written())
	s.Post(t, classic("a", 1)).Want(t, http.StatusCreated, "")
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
		before := len(s.Pipeline.Occurrences())
		a := s.Patch(t, "a", "%s", step.patch)
		a.Want(t, http.StatusOK, "")
		if got := a.Event(t); got.Count != step.count || got.Name != "a" {
			t.Errorf("%s: answered %s with count %d, want %d", step.patch, got.Name, got.Count, step.count)
		}
		got := s.Pipeline.Occurrences()[before:]
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
	s.Post(t, classic("a", 1)).Want(t, http.StatusCreated, "")
	a := s.Patch(t, "a", `{"count":2,"message":"later","reason":"Other","involvedObject":{"name":"other"},"source":{"component":"c"}}`)
	a.Want(t, http.StatusOK, "")
	if got := a.Event(t); got.Reason != "Other" || got.InvolvedObject.Name != "other" {
		t.Errorf("the client does not see its change: %+v", got)
	}
	got := s.Pipeline.Occurrences()
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
	s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a")).Want(t, 201, "")
	a := s.Patch(t, "a", `{"message":"later"}`)
	a.Want(t, 200, "")
	if got := a.Event(t).Message; got != "later" {
		t.Errorf("the client sees %q", got)
	}
	if got := s.Pipeline.Occurrences()[1].Event; identity.Of(got) != identity.Of(s.Pipeline.Occurrences()[0].Event) {
		t.Errorf("reported as another series: %+v", got)
	}
}

func TestRepeatedPostJoinsThePendingOne(t *testing.T) {
	for code, settle := range map[int]func(*occurrence.Occurrence){http.StatusCreated: write, http.StatusAccepted: deferIt} {
		synctest.Test(t, func(t *testing.T) {
			s := serve(t, kept())
			answers := []<-chan answer{background(func() answer { return s.Post(t, classic("a", 2)) })}
			o := <-s.Pipeline.Recorded
			for range 3 {
				answers = append(answers, background(func() answer { return s.Post(t, classic("a", 2)) }))
			}
			// Another Event of the same name does not join.
			another := classic("a", 3)
			another.Reason = "Stopped"
			other := background(func() answer { return s.Post(t, another) })
			synctest.Wait()
			settle(o)
			for i, answered := range answers {
				a := <-answered
				a.Want(t, code, "")
				if got := a.Event(t); got.Name != "a" || got.Count != 2 || code == http.StatusCreated && got.ResourceVersion != "2" {
					t.Errorf("response %d is %+v", i, got)
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
	a := s.Post(t, classic("a", 1))
	a.Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	if got := a.Status(t).Details; got.Name != "a" || got.Kind != "events" || got.Group != "" {
		t.Errorf("details %+v", got)
	}
	a = s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a"))
	a.Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	if got := a.Status(t).Details; got.Name != "a" || got.Kind != "events" || got.Group != "events.k8s.io" {
		t.Errorf("details %+v", got)
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
	s := serve(t, written())
	a := s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 3))
	a.Want(t, http.StatusCreated, "")
	if got := a.Event(t); got.UID == "" || got.Count != 3 {
		t.Errorf("answered %+v", got)
	}
	s.Patch(t, "a", `{}`).Want(t, 404, metav1.StatusReasonNotFound)
	s.Do(t, http.MethodPut, coreEvents+"/a?dryRun=All", classic("a", 3)).Want(t, http.StatusCreated, "")

	s.Post(t, classic("a", 1)).Want(t, 201, "")
	s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 3)).Want(t, 409, metav1.StatusReasonAlreadyExists)
	a = s.Do(t, http.MethodPatch, coreEvents+"/a?dryRun=All", `{"count":9}`)
	a.Want(t, 200, "")
	if got := a.Event(t); got.Count != 9 {
		t.Errorf("answered count %d", got.Count)
	}
	if got := s.Patch(t, "a", `{}`).Event(t); got.Count != 1 {
		t.Errorf("a dry run changed the count to %d", got.Count)
	}
	s.Pipeline.WantRecorded(t, 1)
}

func TestGeneratedNames(t *testing.T) {
	s := serve(t, written())
	names := make(map[string]bool)
	for range 20 {
		event := classic("", 1)
		event.GenerateName = "web-0."
		a := s.Post(t, event)
		a.Want(t, 201, "")
		name := a.Event(t).Name
		if !strings.HasPrefix(name, "web-0.") || names[name] {
			t.Fatalf("name %q after %v", name, names)
		}
		names[name] = true
	}
	for _, o := range s.Pipeline.Occurrences() {
		if !names[o.Client] {
			t.Errorf("recorded for the client %q", o.Client)
		}
	}
}

func TestViewsAreBounded(t *testing.T) {
	t.Run("in number", func(t *testing.T) {
		s := serve(t, written(), func(o *intake.Options, _ *intake.ServerOptions) { o.MaxNames = 2 })
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
		s := serve(t, written(), func(o *intake.Options, _ *intake.ServerOptions) { o.MaxViewBytes = 40 << 10 })
		large := func(name string) *corev1.Event {
			event := classic(name, 1)
			event.Message = strings.Repeat("x", 9<<10)
			return event
		}
		s.Post(t, large("a")).Want(t, 201, "")
		s.Post(t, large("b")).Want(t, 201, "")
		s.Patch(t, "a", `{"message":"short now"}`).Want(t, 200, "")
		s.Post(t, large("c")).Want(t, 201, "") // more than fits, so b goes
		s.Patch(t, "b", `{}`).Want(t, 404, metav1.StatusReasonNotFound)
		s.Patch(t, "a", `{}`).Want(t, 200, "")
		s.Patch(t, "c", `{}`).Want(t, 200, "")
	})
}
