package intake_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/occurrence"
)

// later is a pipeline that writes everything later.
func later() *fakePipeline {
	p := written()
	p.Deferring = true
	return p
}

// serveMixed is a server whose occurrences are written now or later, as the test
// says.
func serveMixed(t *testing.T) (s *server, writeLater func(bool)) {
	p := later()
	return serve(t, p), func(later bool) {
		p.Mu.Lock()
		defer p.Mu.Unlock()
		p.Deferring = later
	}
}

func TestEveryVerbIsAnsweredAcceptedWhenItsWriteIsDeferred(t *testing.T) {
	putCore := func(name string, count int32, version string) *corev1.Event {
		e := classic(name, count)
		e.ResourceVersion = version
		return e
	}
	s := serve(t, later())
	for _, step := range []struct {
		method, path string
		body         any
		header       []string
		name         string
		count        int32
	}{
		{http.MethodPost, coreEvents, classic("a", 1), nil, "a", 1},
		{http.MethodPatch, coreEvents + "/a", `{"count":2}`, nil, "a", 2},
		{http.MethodPatch, coreEvents + "/a", `{"count":4}`, []string{"Content-Type", string(types.MergePatchType)}, "a", 4},
		{http.MethodPatch, coreEvents + "/a", `[{"op":"replace","path":"/count","value":6}]`, []string{"Content-Type", string(types.JSONPatchType)}, "a", 6},
		{http.MethodPut, coreEvents + "/a", putCore("a", 9, ""), nil, "a", 9},
		{http.MethodPut, coreEvents + "/created-by-put", putCore("created-by-put", 5, ""), nil, "created-by-put", 5},
		{http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "n"), nil, "n", 0},
		{http.MethodPatch, newEvents + "/n", `{"series":{"count":3,"lastObservedTime":"2026-01-02T03:04:06.000007Z"}}`, nil, "n", 0},
		{http.MethodPut, newEvents + "/m", fmt.Sprintf(newStyleJSON, "m"), nil, "m", 0},
	} {
		a := s.Do(t, step.method, step.path, step.body, step.header...)
		a.Want(t, http.StatusAccepted, "")
		if got := a.Event(t); got.Name != step.name || got.Count != step.count || got.ResourceVersion == "" || got.UID == "" || got.CreationTimestamp.IsZero() {
			t.Errorf("%s %s: answered %s", step.method, step.path, a.Body)
		}
	}
	s.Pipeline.WantWeights(t, 1, 1, 2, 2, 3, 5, 1, 2, 1)
	for labels, want := range map[string]int{
		`api="core/v1",code="202",verb="create"`: 1, `api="core/v1",code="202",verb="patch"`: 3, `api="core/v1",code="202",verb="update"`: 2,
		`api="events.k8s.io/v1",code="202",verb="create"`: 1, `api="events.k8s.io/v1",code="202",verb="patch"`: 1, `api="events.k8s.io/v1",code="202",verb="update"`: 1,
		`api="core/v1",code="201",verb="create"`: 0,
	} {
		if got := s.scrape(t); !strings.Contains(got, fmt.Sprintf("eventd_intake_requests_total{%s} %d\n", labels, want)) {
			t.Errorf("not counted %d times: %s", want, labels)
		}
	}
}

// scrape is what Prometheus reads.
func (s *server) scrape(t *testing.T) string {
	recorder := httptest.NewRecorder()
	promhttp.HandlerFor(s.Registry, promhttp.HandlerOpts{}).ServeHTTP(recorder, newRequest(t.Context(), t, http.MethodGet, "/metrics", nil))
	return recorder.Body.String()
}

func TestSettledFirstIsAnsweredAsEver(t *testing.T) {
	s := serve(t, kept())
	answered := background(func() answer { return s.Post(t, classic("a", 1)) })
	o := <-s.Pipeline.Recorded
	o.Settled(stored(occurrence.Created, 7))
	o.Deferred() // comes too late to mean anything
	a := <-answered
	a.Want(t, http.StatusCreated, "")
	if got := a.Event(t); got.ResourceVersion != "7" {
		t.Errorf("answered %+v", got)
	}

	answered = background(func() answer { return s.Post(t, classic("b", 1)) })
	o = <-s.Pipeline.Recorded
	o.Deferred()
	o.Settled(occurrence.Settlement{Outcome: occurrence.Uncertain})
	(<-answered).Want(t, http.StatusAccepted, "")
}

func TestClientGoesOnAfterItsReportIsDeferred(t *testing.T) {
	s, writeLater := serveMixed(t)
	first := s.Post(t, classic("a", 2))
	first.Want(t, http.StatusAccepted, "")
	s.Post(t, classic("a", 2)).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	s.Patch(t, "a", `{"count":5}`).Want(t, http.StatusAccepted, "")
	s.Patch(t, "a", `{"count":5}`).Want(t, http.StatusOK, "") // says nothing new

	writeLater(false)
	a := s.Patch(t, "a", `{"count":6}`)
	a.Want(t, http.StatusOK, "")
	if got := a.Event(t); got.UID != "stored-uid" || got.ResourceVersion != "103" {
		t.Errorf("what is stored is not told: %+v", got.ObjectMeta)
	}
	s.Pipeline.WantWeights(t, 2, 3, 1)
	for i, want := range []int64{2, 5, 6} {
		if got := s.Pipeline.Occurrences()[i]; got.Total != want || got.Client != "a" {
			t.Errorf("occurrence %d is of %q, which has reached %d", i, got.Client, got.Total)
		}
	}
}

// Two clients that change the same view of a name do not overwrite each other,
// though nothing has a resourceVersion of the apiserver's yet.
func TestDeferredChangesConflict(t *testing.T) {
	s, writeLater := serveMixed(t)
	event := s.Post(t, classic("a", 1)).Event(t)
	for _, deferred := range []bool{true, false, true} {
		writeLater(deferred)
		one, other := event.DeepCopy(), event.DeepCopy()
		one.Count, other.Count = event.Count+1, event.Count+2
		a := s.Do(t, http.MethodPut, coreEvents+"/a", one)
		if a.Code >= 300 {
			t.Fatalf("answered %d: %s", a.Code, a.Body)
		}
		s.Do(t, http.MethodPut, coreEvents+"/a", other).Want(t, http.StatusConflict, metav1.StatusReasonConflict)
		event = a.Event(t)
	}
}

func TestDryRunIsNeverDeferred(t *testing.T) {
	s := serve(t, later())
	s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", classic("a", 1)).Want(t, http.StatusCreated, "")
	s.Post(t, classic("a", 1)).Want(t, http.StatusAccepted, "")
	s.Do(t, http.MethodPatch, coreEvents+"/a?dryRun=All", `{"count":2}`).Want(t, http.StatusOK, "")
	s.Do(t, http.MethodPut, coreEvents+"/a?dryRun=All", classic("a", 3)).Want(t, http.StatusOK, "")
	s.Do(t, http.MethodPut, coreEvents+"/b?dryRun=All", classic("b", 3)).Want(t, http.StatusCreated, "")
	s.Pipeline.WantRecorded(t, 1)
}

func TestReportThatIsDeferredAfterItsClientHasGoneIsRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept())
		a := background(func() answer { return s.Post(t, classic("a", 2)) })
		o := <-s.Pipeline.Recorded
		time.Sleep(2 * time.Minute)
		(<-a).Want(t, http.StatusGatewayTimeout, metav1.StatusReasonTimeout)
		o.Deferred()
		s.Post(t, classic("a", 2)).Want(t, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	})
}

// In a crowd of requests of one name, some written and some deferred, each raise
// is reported once.
func TestEveryRaiseIsReportedOnceThoughSomeAreDeferred(t *testing.T) {
	s, _ := serveMixed(t)
	n := 0
	s.Pipeline.Mu.Lock()
	ok := s.Pipeline.Settle
	s.Pipeline.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
		n++
		s.Pipeline.Deferring = n%2 == 0
		return ok(o)
	}
	s.Pipeline.Mu.Unlock()
	s.Post(t, classic("a", 1))
	var clients sync.WaitGroup
	for i := range 200 {
		clients.Go(func() {
			a := s.Patch(t, "a", `{"count":%d}`, i+2)
			if a.Code != http.StatusOK && a.Code != http.StatusAccepted {
				t.Errorf("answered %d: %s", a.Code, a.Body)
			}
		})
	}
	clients.Wait()
	var sum int64
	for _, weight := range s.Pipeline.Weights() {
		sum += weight
	}
	if sum != 201 {
		t.Errorf("%d were reported, want 201", sum)
	}
}
