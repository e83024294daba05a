package intake

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

// leaderless is a gate that knows a leader or not.
type leaderless struct {
	*gate
	err error
}

func (l leaderless) Begin() Forwarding                 { return l }
func (l leaderless) AwaitLeader(context.Context) error { return l.err }

// A request waits for a leader before its caller is authenticated, and is handled in the term of one.
func TestRequestIsHandledInATerm(t *testing.T) {
	for name, test := range map[string]struct {
		err     error
		lasts   int // records of the first term
		code    int
		asked   int // how often the authenticator was
		handled string
	}{
		"without a leader":           {err: apierrors.NewServiceUnavailable("no leader"), code: 503, handled: "[]"},
		"with a leader":              {lasts: 1, code: 201, asked: 1, handled: "[true]"},
		"with one whose term is out": {code: 201, asked: 1, handled: "[false true]"},
	} {
		for kind, query := range map[string]string{"plain": "", "not plain": "?fieldManager=a"} {
			t.Run(name+", "+kind, func(t *testing.T) {
				asked := 0
				o := DefaultOptions()
				o.Record = func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Created}) }
				forwarder := leaderless{&gate{lasts: test.lasts}, test.err}
				handler := must(NewHandler(ServerOptions{
					Intake: must(New(o)), Authorizer: allowing{}, Forwarder: forwarder,
					Authenticator: authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
						asked++
						return accepting("jane").AuthenticateRequest(req)
					}),
				}))
				req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/events"+query,
					strings.NewReader(`{"kind":"Event","apiVersion":"v1","metadata":{"name":"a"},"involvedObject":{"namespace":"ns"}}`))
				req.Header.Set("Content-Type", runtime.ContentTypeJSON)
				req.Header.Set("Authorization", "Bearer token")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, req)
				equal(t, "code", w.Code, test.code)
				equal(t, "authenticated", asked, test.asked)
				equal(t, "handled", fmt.Sprint(forwarder.handled), test.handled)
			})
		}
	}
}

// allowing allows everything, but not the verbs that it has.
type allowing map[string]error

func (a allowing) Authorize(_ context.Context, attributes authorizer.Attributes) (authorizer.Decision, string, error) {
	switch err, denied := a[attributes.GetVerb()]; {
	case err != nil:
		return authorizer.DecisionNoOpinion, "", err
	case denied:
		return authorizer.DecisionNoOpinion, "", nil
	}
	return authorizer.DecisionAllow, "", nil
}

// Who may create Events and not change them reports for Events of its own, one by one and in batches. If that is
// not known, nothing is recorded.
func TestCallerWhoMayOnlyCreateDoesSoInABatch(t *testing.T) {
	const event = `{"metadata":{"name":"a"},"involvedObject":{"namespace":"ns"}}`
	for name, test := range map[string]struct {
		denied allowing
		code   int
		want   []bool // CreateOnly of each occurrence
	}{
		"may patch":    {code: 201, want: []bool{false}},
		"may not":      {denied: allowing{"patch": nil}, code: 201, want: []bool{true}},
		"is not known": {denied: allowing{"patch": apierrors.NewInternalError(fmt.Errorf("no answer"))}, code: 503},
	} {
		for path, request := range map[string]struct{ query, body string }{
			"alone":      {"", `{"kind":"Event","apiVersion":"v1",` + event[1:]},
			"in a batch": {"?" + batch.Query, `{"kind":"EventList","apiVersion":"v1","items":[` + event + `]}`},
		} {
			t.Run(name+", "+path, func(t *testing.T) {
				var got []bool
				o := DefaultOptions()
				o.Record = func(o *occurrence.Occurrence) {
					got = append(got, o.CreateOnly)
					o.Settled(occurrence.Settlement{Outcome: occurrence.Created})
				}
				handler := must(NewHandler(ServerOptions{Intake: must(New(o)), Authenticator: accepting("jane"), Authorizer: test.denied}))
				req := httptest.NewRequest(http.MethodPost, "/api/v1/namespaces/ns/events"+request.query, strings.NewReader(request.body))
				req.Header.Set("Content-Type", runtime.ContentTypeJSON)
				req.Header.Set("Authorization", "Bearer token")
				w := httptest.NewRecorder()
				handler.ServeHTTP(w, req)
				if code := test.code; code == http.StatusCreated && request.query != "" {
					equal(t, "code", w.Code, http.StatusOK)
				} else {
					equal(t, "code", w.Code, code)
				}
				equal(t, "create only", got, test.want)
			})
		}
	}
}

// Answers to many requests are encoded from one Event at once, which stays as it is. The race detector sees the rest.
func TestAnswersLeaveTheirEventAsItIs(t *testing.T) {
	labelled := backOff("b")
	labelled.Labels = map[string]string{"a": "b"}
	i := newIntake()
	for _, event := range []*corev1.Event{backOff("a"), labelled} {
		before := event.DeepCopy()
		var all sync.WaitGroup
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			plain := newPlain(newStorage(i, api, nil), must(newScope(i, api)))
			answers := plain.or(func(context.Context, *http.Request, *request.RequestInfo) (*corev1.Event, int, error) {
				return event, http.StatusCreated, nil
			}, nil)
			for _, answer := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				for range 4 {
					all.Go(func() {
						req := httptest.NewRequest(http.MethodPost, "/", nil)
						req.Header.Set("Accept", answer)
						w := httptest.NewRecorder()
						answers(w, req.WithContext(request.WithRequestInfo(req.Context(), &request.RequestInfo{})))
						if w.Code != http.StatusCreated || w.Header().Get("Content-Type") != answer || w.Body.Len() == 0 {
							t.Errorf("%d %v: %s", w.Code, w.Header(), w.Body)
						}
					})
				}
			}
		}
		all.Wait()
		equal(t, "the Event", event, before)
	}
}
