package intake_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
)

const kubelet, robot = "system:node:node-1", "system:serviceaccount:ns:robot"

// authenticatedByHeader authenticates each request as the user in its header.
func authenticatedByHeader(_ *intake.Options, o *intake.ServerOptions) {
	o.Authenticator = authenticator.RequestFunc(func(r *http.Request) (*authenticator.Response, bool, error) {
		return &authenticator.Response{User: &user.DefaultInfo{Name: r.Header.Get("As")}}, true, nil
	})
}

// postAs and patchAs are post and patch as a user.
func (s *server) postAs(t testing.TB, who string, event *corev1.Event) answer {
	t.Helper()
	return s.Do(t, http.MethodPost, coreEvents, event, "As", who)
}

func (s *server) patchAs(t testing.TB, who, name, patch string) answer {
	t.Helper()
	return s.Do(t, http.MethodPatch, coreEvents+"/"+name, patch, "As", who)
}

func TestOccurrenceNamesTheAuthenticatedUserWhateverSourceItClaims(t *testing.T) {
	p := written()
	s := serve(t, p)
	s.Post(t, classic("web-0.1", 1)).Want(t, 201, "")
	s.Patch(t, "web-0.1", `{"count":2}`).Want(t, 200, "")
	occurrences := p.Occurrences()
	for i, o := range occurrences {
		if o.User != "tester" {
			t.Errorf("occurrence %d is of the user %q, not of the one who was authenticated", i, o.User)
		}
	}
	if len(occurrences) != 2 {
		t.Fatalf("%d occurrences, not 2", len(occurrences))
	}
	// The user is for limits, and not part of the series.
	other := *occurrences[0]
	other.User = "another"
	if other.Series() != identity.Of(occurrences[0].Event) {
		t.Error("the user is part of the identity")
	}
}

// creates is an apiserver that accepts every create.
type creates struct{}

func (creates) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	event.UID, event.ResourceVersion = "uid", "1"
	return event, nil
}

func (creates) Patch(_ context.Context, _ occurrence.API, _, name string, _ []byte) (*corev1.Event, error) {
	return nil, apierrors.NewNotFound(corev1.Resource("events"), name)
}

// A caller that may create Events in its namespace only forges Events of the kubelet
// until its own budget is spent.
func TestForgedSourceCostsTheKubeletNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, err := pipeline.New(t.Context(), pipeline.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		if err := p.StartSink(creates{}); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := p.Shutdown(t.Context()); err != nil {
				t.Error(err)
			}
		}()
		s := serve(t, written(), authenticatedByHeader, func(o *intake.Options, _ *intake.ServerOptions) { o.Record = p.Record })
		warning := func(name, reason string) *corev1.Event {
			event := classic(name, 1)
			event.Type, event.Reason = corev1.EventTypeWarning, reason
			return event
		}
		for i := range 25 + 64 {
			if a := s.postAs(t, robot, warning(fmt.Sprint("forged.", i), fmt.Sprint("Forged", i))); a.Code >= 300 {
				t.Fatalf("forged Event %d is answered %d: %s", i, a.Code, a.Body)
			}
		}
		refused := s.postAs(t, robot, warning("forged.last", "Forged"))
		refused.Want(t, 429, metav1.StatusReasonTooManyRequests)
		if after := refused.Header.Get("Retry-After"); after != "" {
			t.Errorf("Retry-After is %q: the recorder would delay all its other Events", after)
		}
		s.postAs(t, kubelet, warning("web-0.1", "BackOff")).Want(t, 201, "")
		time.Sleep(time.Second)
		s.postAs(t, kubelet, warning("web-0.2", "Unhealthy")).Want(t, 201, "")
	})
}

func TestTenantMakesNoOthersViewsForgotten(t *testing.T) {
	large := strings.Repeat("x", 8<<10)
	for name, test := range map[string]struct {
		limit   func(*intake.Options)
		own     int    // views of the kubelet
		message string // of what floods
	}{
		"in number":                      {func(o *intake.Options) { o.MaxNames = 20 }, 10, "m"},
		"in size":                        {func(o *intake.Options) { o.MaxViewBytes = 64 << 10 }, 10, large},
		"in size, with few and large":    {func(o *intake.Options) { o.MaxNames, o.MaxViewBytes = 1000, 64<<10 }, 10, large},
		"in number, beside large others": {func(o *intake.Options) { o.MaxNames, o.MaxViewBytes = 20, 1<<20 }, 10, large},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, written(), authenticatedByHeader, func(o *intake.Options, _ *intake.ServerOptions) { test.limit(o) })
			for i := range test.own {
				s.postAs(t, kubelet, classic(fmt.Sprint("own.", i), 1)).Want(t, 201, "")
			}
			for i := range 200 { // each by another ServiceAccount
				event := classic(fmt.Sprint("flood.", i), 1)
				event.Message = test.message
				s.postAs(t, fmt.Sprint(robot, i), event).Want(t, 201, "")
			}
			for i := range test.own {
				s.patchAs(t, kubelet, fmt.Sprint("own.", i), `{"count":2}`).Want(t, 200, "")
			}
		})
	}
}
