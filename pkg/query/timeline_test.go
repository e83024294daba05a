package query

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
)

// newAPI returns an API with a history of large Events about one Pod, and a trail.
func newAPI(t *testing.T, set func(*Options)) *API {
	t.Helper()
	h, err := history.New(history.Options{MaxBytes: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		h.Add(observer.Version{Observed: time.Now(), Event: &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprint("web.", i), UID: types.UID(fmt.Sprint(i)), ResourceVersion: fmt.Sprint(i + 1)},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web"}, Message: strings.Repeat("x", 16<<10),
		}})
	}
	steps, err := trail.New(trail.Options{})
	if err != nil {
		t.Fatal(err)
	}
	o := Options{History: h, Trail: steps, Gatherer: prometheus.NewRegistry(), Status: func() v1alpha1.PipelineStatus { return v1alpha1.PipelineStatus{} }}
	set(&o)
	a, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// waits is intake.Query.Wait without a seat.
func waits(_ context.Context, wait func()) { wait() }

// Three results of this size are all that a tenant may hold.
func TestAnswersReleaseTheResultsOfTheHistory(t *testing.T) {
	a := newAPI(t, func(*Options) {})
	q := &query{caller: "jane", wait: waits, limit: 5000, Object: v1alpha1.ObjectReference{Name: "web"}}
	of := func(resource string) *query {
		q := *q
		q.resource = resource
		return &q
	}
	for name, ask := range map[string]func() error{
		"timeline": func() error { _, err := a.object(t.Context(), of(resourceTimeline)); return err },
		"why":      func() error { _, err := a.object(t.Context(), of(resourceWhy)); return err },
		"timeline, whose client has gone": func() error {
			ctx, leave := context.WithCancel(t.Context())
			gone := of(resourceTimeline)
			gone.wait = func(_ context.Context, wait func()) {
				wait()
				leave()
			}
			if _, err := a.object(ctx, gone); !errors.Is(err, context.Canceled) {
				return fmt.Errorf("it returns %w", err)
			}
			return nil
		},
	} {
		for i := range 5 {
			if err := ask(); err != nil {
				t.Fatalf("%s, after %d others: %v", name, i, err)
			}
		}
	}
}

func TestResultsOfATenantKeepNoOtherFromItsTimeline(t *testing.T) {
	a := newAPI(t, func(*Options) {})
	for held := 0; ; held++ {
		result, err := a.options.History.List(t.Context(), history.Query{Caller: "jane", Limit: 5000})
		if errors.Is(err, history.ErrBusy) && held > 0 {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		defer result.Release()
	}
	for tenant, busy := range map[string]bool{"jane": true, "joe": false} {
		waited := false
		q := &query{resource: resourceTimeline, caller: tenant, limit: 5000, wait: func(ctx context.Context, wait func()) { waited = true; wait() }}
		if _, err := a.object(t.Context(), q); apierrors.IsTooManyRequests(err) != busy || !busy && err != nil || !waited {
			t.Errorf("%s: %v, without a seat: %v", tenant, err, waited)
		}
	}
}

// At a handover two replicas may each take the other one for the leader.
func TestAQueryIsRelayedOnce(t *testing.T) {
	a := newAPI(t, func(o *Options) {
		o.Leading = func() bool { return false }
		o.Leader = func() *v1alpha1.Leader { return &v1alpha1.Leader{Identity: "other"} }
		o.Relay = func(context.Context, *http.Request) (*http.Response, error) {
			t.Error("it is relayed again")
			return nil, errors.New("relayed")
		}
	})
	allow := func(context.Context, string, string) (bool, error) { return false, nil }
	for _, path := range []string{"top", "status", "why?name=web", "drops", "top?watch=true"} {
		req := httptest.NewRequest(http.MethodGet, "/"+path, nil)
		answer, _, err := a.Query(intake.Query{Request: req, Resource: strings.TrimPrefix(req.URL.Path, "/"), Relayed: true, Authorize: allow, Wait: waits})
		if !apierrors.IsServiceUnavailable(err) {
			t.Errorf("%s: %v", path, err)
		}
		if answer != nil {
			answer(httptest.NewRecorder(), req)
		}
	}
}
