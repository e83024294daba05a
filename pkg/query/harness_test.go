package query_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
	"github.com/eventd/eventd/test/intaketest"
)

func TestMain(m *testing.M) { intaketest.Main(m) }

const root = "/apis/query.eventd.io/v1alpha1/"

// scene is an eventd's server with the query API, and what it answers from.
type scene struct {
	*intaketest.Server
	api      *query.API
	history  *history.History
	trail    *trail.Trail
	stopping chan struct{}

	mu      sync.Mutex
	denied  map[string]bool // namespaces; "" for all
	failing map[string]bool // namespaces whose reviews fail
	reviews []string        // verb and namespace
	version int
}

func newScene(t testing.TB, settings ...func(*query.Options)) *scene {
	t.Helper()
	s := &scene{stopping: make(chan struct{}), denied: map[string]bool{}, failing: map[string]bool{}}
	var err error
	if s.history, err = history.New(history.Options{MaxBytes: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	if s.trail, err = trail.New(trail.Options{}); err != nil {
		t.Fatal(err)
	}
	s.Server = intaketest.Serve(t, intaketest.Written(), intaketest.Authorized(s.authorize), func(i *intake.Options, o *intake.ServerOptions) {
		options := query.Options{
			History: s.history, Trail: s.trail, Gatherer: i.Registerer.(prometheus.Gatherer), Stopping: s.stopping,
			Status: func() v1alpha1.PipelineStatus {
				return v1alpha1.PipelineStatus{Replica: v1alpha1.Replica{Identity: "a", Role: "alone"}}
			},
		}
		for _, set := range settings {
			set(&options)
		}
		if s.api, err = query.New(options); err != nil {
			t.Fatal(err)
		}
		o.Queries, o.AccessReviewTTL = s.api, -1
		// A user for each token.
		o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("Authorization")}}, true, nil
		})
	})
	return s
}

func (s *scene) authorize(a authorizer.Attributes) (authorizer.Decision, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reviews = append(s.reviews, a.GetVerb()+" "+a.GetNamespace())
	if s.denied[a.GetNamespace()] {
		return authorizer.DecisionDeny, "", nil
	}
	if s.failing[a.GetNamespace()] {
		return authorizer.DecisionNoOpinion, "", errors.New("the apiserver does not answer")
	}
	return authorizer.DecisionAllow, "", nil
}

func (s *scene) deny(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.denied[namespace] = true
}

// fail has the reviews of a namespace fail.
func (s *scene) fail(namespace string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing[namespace] = true
}

// reviewed returns the reviews since it was called last.
func (s *scene) reviewed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	last := s.reviews
	s.reviews = nil
	return last
}

// happens has a version of an Event observed.
func (s *scene) happens(namespace, name, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version++
	s.history.Add(observer.Version{Observed: time.Now(), Event: &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("%s.%d", name, s.version), ResourceVersion: fmt.Sprint(s.version),
			UID: types.UID(fmt.Sprintf("00000000-0000-0000-0000-%012d", s.version)), CreationTimestamp: metav1.Now(),
		},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: name, UID: "pod-uid"},
		Reason:         "Failed", Message: message, Type: corev1.EventTypeWarning, Count: 3,
		Source:         corev1.EventSource{Component: "kubelet", Host: "node-1"},
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}})
}

// get decodes the answer to a query.
func get[T any](t testing.TB, s *scene, path string) (object T) {
	t.Helper()
	a := s.Do(t, http.MethodGet, root+path, nil)
	if a.Code != http.StatusOK {
		t.Fatalf("%s is answered %d: %s", path, a.Code, a.Body)
	}
	if err := json.Unmarshal(a.Body, &object); err != nil {
		t.Fatal(err)
	}
	return object
}

// listen serves the scene over HTTPS, and returns its URL and a client.
func (s *scene) listen(t testing.TB) (url string, client *http.Client) {
	t.Helper()
	server := httptest.NewUnstartedServer(s)
	server.EnableHTTP2 = true
	server.StartTLS()
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	transport := &http.Transport{
		TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true,
	}
	t.Cleanup(transport.CloseIdleConnections)
	return server.URL + root, &http.Client{Transport: transport}
}

// tail is an open watch.
type tail struct {
	t     testing.TB
	body  *http.Response
	lines *bufio.Scanner
}

// open opens a watch.
func open(ctx context.Context, t testing.TB, client *http.Client, url string, header ...string) *tail {
	t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	response, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = response.Body.Close() })
	return &tail{t, response, bufio.NewScanner(response.Body)}
}

// received is a frame that was read.
type received struct {
	Type   string
	Object json.RawMessage
}

// next returns the next frame, or false at the end.
func (w *tail) next() (f received, ok bool) {
	w.t.Helper()
	if !w.lines.Scan() {
		return f, false
	}
	if err := json.Unmarshal(w.lines.Bytes(), &f); err != nil {
		w.t.Fatalf("%v: %s", err, w.lines.Bytes())
	}
	return f, true
}

// begun returns when the tail has its place: what happens from now on is sent.
func (w *tail) begun() {
	w.t.Helper()
	if f, ok := w.next(); !ok || f.Type != "BOOKMARK" {
		w.t.Fatalf("the first frame is %q: %s", f.Type, f.Object)
	}
}

// item returns the next Event.
func (w *tail) item() v1alpha1.TailItem {
	w.t.Helper()
	for {
		f, ok := w.next()
		if !ok {
			w.t.Fatalf("the tail has ended: %v", w.lines.Err())
		}
		var item v1alpha1.TailItem
		switch err := json.Unmarshal(f.Object, &item); {
		case err != nil:
			w.t.Fatal(err)
		case f.Type == "ADDED":
			return item
		case f.Type != "BOOKMARK":
			w.t.Fatalf("a frame is %s: %s", f.Type, f.Object)
		}
	}
}

// end returns the Status with which the watch ends, nil if there is none.
func (w *tail) end() *metav1.Status {
	w.t.Helper()
	var last *metav1.Status
	for {
		f, ok := w.next()
		if !ok {
			return last
		}
		if f.Type == "ERROR" {
			last = &metav1.Status{}
			if err := json.Unmarshal(f.Object, last); err != nil {
				w.t.Fatal(err)
			}
		}
	}
}
