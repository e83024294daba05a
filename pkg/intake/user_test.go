package intake_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

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
		p := must(pipeline.New(t.Context(), pipeline.DefaultOptions()))
		equal(t, "error of the start", p.StartSink(creates{}), nil)
		defer func() { equal(t, "error of the shutdown", p.Shutdown(t.Context()), nil) }()
		s := serve(t, written(), authenticatedByHeader, withOptions(func(o *intake.Options) { o.Record = p.Record }))
		warn := func(who, name, reason string) answer {
			event := classic(name, 1)
			event.Type, event.Reason = corev1.EventTypeWarning, reason
			return s.postAs(t, who, event)
		}
		for i := range 25 + 64 {
			if a := warn(robot, fmt.Sprint("forged.", i), fmt.Sprint("Forged", i)); a.Code >= 300 {
				t.Fatalf("forged Event %d is answered %d: %s", i, a.Code, a.Body)
			}
		}
		refused := warn(robot, "forged.last", "Forged")
		refused.Want(t, 429, metav1.StatusReasonTooManyRequests)
		equal(t, "Retry-After, which would delay all Events of the recorder", refused.Header.Get("Retry-After"), "")
		warn(kubelet, "web-0.1", "BackOff").Want(t, 201, "")
		time.Sleep(time.Second)
		warn(kubelet, "web-0.2", "Unhealthy").Want(t, 201, "")
	})
}

func TestTenantMakesNoOthersViewsForgotten(t *testing.T) {
	const own, large = 10, 8 << 10
	for name, test := range map[string]struct {
		maxNames     int
		maxViewBytes int64
		message      int // length of what floods
	}{
		"in number":                      {20, 64 << 20, 1},
		"in size":                        {16_384, 64 << 10, large},
		"in size, with few and large":    {1000, 64 << 10, large},
		"in number, beside large others": {20, 1 << 20, large},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, written(), authenticatedByHeader, withOptions(func(o *intake.Options) {
				o.MaxNames, o.MaxViewBytes = test.maxNames, test.maxViewBytes
			}))
			for i := range own {
				s.postAs(t, kubelet, classic(fmt.Sprint("own.", i), 1)).Want(t, 201, "")
			}
			for i := range 200 { // each by another ServiceAccount
				s.postAs(t, fmt.Sprint(robot, i), withMessage(fmt.Sprint("flood.", i), test.message)).Want(t, 201, "")
			}
			for i := range own {
				s.patchAs(t, kubelet, fmt.Sprint("own.", i), `{"count":2}`).Want(t, 200, "")
			}
		})
	}
}

// rights allow what is listed, as "verb name", and have no opinion about anything else.
func rights(list ...string) setting {
	return authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if slices.Contains(list, a.GetVerb()+" "+a.GetName()) {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "", nil
	})
}

func TestWhoMayOnlyCreateIsKnownOfEachOccurrence(t *testing.T) {
	post := func(t *testing.T, s *server) answer { return s.Post(t, classic("a", 1)) }
	postNew := func(t *testing.T, s *server) answer {
		return s.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "a"))
	}
	put := func(t *testing.T, s *server) answer { return s.Do(t, http.MethodPut, coreEvents+"/a", classic("a", 2)) }
	patch := func(t *testing.T, s *server) answer { return s.Patch(t, "a", `{"count":2}`) }
	type requests = []func(*testing.T, *server) answer
	for _, test := range []struct {
		name   string
		rights []string
		do     requests
		want   []bool // of each occurrence
	}{
		{"a create without more", []string{"create "}, requests{post}, []bool{true}},
		{"a create, and the right to patch", []string{"create ", "patch "}, requests{post}, []bool{false}},
		{"a create through the other API", []string{"create "}, requests{postNew}, []bool{true}},
		{"a create, and the right to patch that name", []string{"create ", "patch a"}, requests{post}, []bool{true}},
		{"an update that creates", []string{"create ", "update "}, requests{put}, []bool{false}},
		{"an update that creates, and the right to update that name", []string{"create ", "update a", "patch "}, requests{put}, []bool{true}},
		{"a patch", []string{"create ", "patch "}, requests{post, patch}, []bool{false, false}},
		{"a patch, and the right to patch that name", []string{"create ", "patch a"}, requests{post, patch}, []bool{true, true}},
		{"an update", []string{"create ", "update "}, requests{post, put}, []bool{true, false}},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := serve(t, written(), rights(test.rights...))
			for _, do := range test.do {
				if a := do(t, s); a.Code >= 300 {
					t.Fatalf("answered %d: %s", a.Code, a.Body)
				}
			}
			var got []bool
			for _, o := range s.Pipeline.Occurrences() {
				got = append(got, o.CreateOnly)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("create only: %v, want %v", got, test.want)
			}
		})
	}
}

// For another user the same Event of the same name is not a repeated POST.
func TestPostIsJoinedBySameUserOnly(t *testing.T) {
	for _, test := range []struct {
		second string
		count  int32
		prefix string
		code   int
	}{{"jane", 1, "", 201}, {"jane", 1, "other", 409}, {"joe", 1, "", 409}, {"joe", 2, "", 409}} {
		synctest.Test(t, func(t *testing.T) {
			p := kept()
			s := serve(t, p, authenticatedByHeader)
			answers := make([]answer, 2)
			events := []*corev1.Event{classic("a", 1), classic("a", test.count)}
			events[1].GenerateName = test.prefix
			for i, who := range []string{"jane", test.second} {
				go func() { answers[i] = s.postAs(t, who, events[i]) }()
				synctest.Wait()
			}
			(<-p.Recorded).Settled(stored(occurrence.Created, 7))
			synctest.Wait()
			answers[0].Want(t, 201, "")
			if got := answers[1].Code; got != test.code {
				t.Errorf("the same from %s is answered %d, want %d", test.second, got, test.code)
			}
			p.WantRecorded(t, 1)
		})
	}
}
