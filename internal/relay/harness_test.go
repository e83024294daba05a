package relay_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// fakePipeline stands for the pipeline behind an intake: it settles every
// occurrence as its function says, or keeps it for the test to settle.
type fakePipeline struct {
	mu     sync.Mutex
	settle func(*occurrence.Occurrence) (occurrence.Settlement, bool)
	// deferring: what would be settled at once is deferred.
	deferring bool
	got       []*occurrence.Occurrence
	recorded  chan *occurrence.Occurrence // of those that are kept
}

// written settles everything at once, each with a newer resourceVersion.
func written() *fakePipeline {
	version := 100
	return &fakePipeline{
		recorded: make(chan *occurrence.Occurrence, 100),
		settle: func(*occurrence.Occurrence) (occurrence.Settlement, bool) {
			version++
			return stored(occurrence.Created, version), true
		},
	}
}

// kept settles nothing.
func kept() *fakePipeline {
	p := written()
	p.settle = func(*occurrence.Occurrence) (occurrence.Settlement, bool) { return occurrence.Settlement{}, false }
	return p
}

// settled settles everything in the same way.
func settled(s occurrence.Settlement) *fakePipeline {
	p := written()
	p.settle = func(*occurrence.Occurrence) (occurrence.Settlement, bool) { return s, true }
	return p
}

func stored(outcome occurrence.Outcome, version int) occurrence.Settlement {
	return occurrence.Settlement{Outcome: outcome, Object: &corev1.Event{ObjectMeta: metav1.ObjectMeta{
		Name: "derived.0123456789abcdef", UID: "stored-uid", ResourceVersion: strconv.Itoa(version),
		CreationTimestamp: metav1.Unix(1_700_000_000, 0),
	}}}
}

func (p *fakePipeline) record(o *occurrence.Occurrence) {
	p.mu.Lock()
	p.got = append(p.got, o)
	s, now := p.settle(o)
	later := p.deferring
	p.mu.Unlock()
	switch {
	case now && later:
		o.Deferred()
	case now:
		o.Settled(s)
	default:
		p.recorded <- o
	}
}

func (p *fakePipeline) occurrences() []*occurrence.Occurrence {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]*occurrence.Occurrence(nil), p.got...)
}

// weights are those of all occurrences, in order.
func (p *fakePipeline) weights() []int64 {
	var weights []int64
	for _, o := range p.occurrences() {
		weights = append(weights, o.Weight)
	}
	return weights
}

// server is an intake's handler. It is called without a network in between, so
// that a test in a synctest bubble sees when every request waits.
type server struct {
	http.Handler
	intake   *intake.Intake
	pipeline *fakePipeline
	registry *prometheus.Registry
}

type setting func(*intake.Options, *intake.ServerOptions)

// serve starts a server that lets everybody do everything, unless a setting
// says otherwise.
func serve(t testing.TB, p *fakePipeline, settings ...setting) *server {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	options := intake.DefaultOptions()
	options.Record = p.record
	options.Registerer = registry
	serverOptions := intake.ServerOptions{
		Authenticator: authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: "tester"}}, true, nil
		}),
		Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer(),
	}
	for _, set := range settings {
		set(&options, &serverOptions)
	}
	i, err := intake.New(options)
	if err != nil {
		t.Fatal(err)
	}
	serverOptions.Intake = i
	handler, err := intake.NewHandler(serverOptions)
	if err != nil {
		t.Fatal(err)
	}
	return &server{Handler: presenting(handler), intake: i, pipeline: p, registry: registry}
}

// withoutToken is a header of a request that is to have no token.
const withoutToken = "Test-No-Token"

// presenting gives a token to requests that have none: without one nothing is
// answered.
func presenting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(withoutToken) == "" && req.Header.Get("Authorization") == "" {
			req.Header.Set("Authorization", "Bearer of-the-tester")
		}
		next.ServeHTTP(w, req)
	})
}

func authorized(allow func(authorizer.Attributes) (authorizer.Decision, string, error)) setting {
	return func(_ *intake.Options, s *intake.ServerOptions) { s.Authorizer = decision(allow) }
}

type decision func(authorizer.Attributes) (authorizer.Decision, string, error)

// answer is a response that was read.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// status is the Status of an answer that refuses.
func (a answer) status(t testing.TB) metav1.Status {
	t.Helper()
	var status metav1.Status
	if err := json.Unmarshal(a.body, &status); err != nil || status.Status != metav1.StatusFailure {
		t.Fatalf("no Status but %d: %s", a.code, a.body)
	}
	return status
}

// event is the core/v1 Event of an answer that accepts.
func (a answer) event(t testing.TB) *corev1.Event {
	t.Helper()
	event := &corev1.Event{}
	if err := json.Unmarshal(a.body, event); err != nil || event.Kind != "Event" {
		t.Fatalf("no Event but %d: %s", a.code, a.body)
	}
	return event
}

func (a answer) want(t testing.TB, code int, reason metav1.StatusReason) {
	t.Helper()
	if a.code != code {
		t.Fatalf("answered %d, want %d: %s", a.code, code, a.body)
	}
	if code >= 400 {
		if got := a.status(t).Reason; got != reason {
			t.Fatalf("reason %q, want %q: %s", got, reason, a.body)
		}
	}
}

const coreEvents, newEvents = "/api/v1/namespaces/ns/events", "/apis/events.k8s.io/v1/namespaces/ns/events"

// do sends a request and reads the answer.
func (s *server) do(t testing.TB, method, path string, body any, header ...string) answer {
	t.Helper()
	return s.doUntil(t.Context(), t, method, path, body, header...)
}

// doUntil is do for a client that goes away when ctx ends.
func (s *server) doUntil(ctx context.Context, t testing.TB, method, path string, body any, header ...string) answer {
	t.Helper()
	defer func() {
		// As net/http does it: there is nobody to answer.
		if p := recover(); p != nil && (p != http.ErrAbortHandler || ctx.Err() == nil) {
			panic(p)
		}
	}()
	return s.send(newRequest(ctx, t, method, path, body, header...))
}

func (s *server) send(req *http.Request) answer {
	recorder := httptest.NewRecorder()
	s.ServeHTTP(recorder, req)
	return answer{recorder.Code, recorder.Header(), recorder.Body.Bytes()}
}

func newRequest(ctx context.Context, t testing.TB, method, url string, body any, header ...string) *http.Request {
	t.Helper()
	var reader io.Reader
	switch body := body.(type) {
	case nil:
	case string:
		reader = strings.NewReader(body)
	case []byte:
		reader = bytes.NewReader(body)
	default:
		data, err := json.Marshal(body)
		if err != nil {
			t.Fatal(err)
		}
		reader = bytes.NewReader(data)
	}
	req := httptest.NewRequestWithContext(ctx, method, url, reader)
	if method == http.MethodPatch {
		req.Header.Set("Content-Type", string(types.StrategicMergePatchType))
	} else if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	return req
}

func (s *server) post(t testing.TB, event *corev1.Event) answer {
	t.Helper()
	return s.do(t, http.MethodPost, coreEvents, event)
}

func (s *server) patch(t testing.TB, name, format string, args ...any) answer {
	t.Helper()
	return s.do(t, http.MethodPatch, coreEvents+"/"+name, fmt.Sprintf(format, args...))
}

// classic returns a valid core/v1 Event without eventTime.
func classic(name string, count int32) *corev1.Event {
	return &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "ns"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-0", UID: "pod-uid"},
		Reason:         "Started", Message: "container started", Type: corev1.EventTypeNormal,
		Source:         corev1.EventSource{Component: "kubelet", Host: "node-1"},
		FirstTimestamp: metav1.Unix(1_700_000_000, 0), LastTimestamp: metav1.Unix(1_700_000_000, 0),
		Count: count,
	}
}

const newStyleJSON = `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":%q},` +
	`"eventTime":"2026-01-02T03:04:05.000006Z","reportingController":"example.com/controller","reportingInstance":"c-1",` +
	`"action":"Binding","reason":"Scheduled","regarding":{"kind":"Pod","namespace":"ns","name":"web-0"},"note":"bound","type":"Normal"}`

func (d decision) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return d(a)
}
