package relay_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// whoAsks is an API that answers who asks, and then watches until the client goes away.
type whoAsks struct{ ended chan struct{} }

func (whoAsks) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "query.example.com", Version: "v1"}
}

func (whoAsks) Resources() []metav1.APIResource { return []metav1.APIResource{{Name: "things"}} }

func (q whoAsks) Query(r intake.Query) (http.HandlerFunc, bool, error) {
	caller, _ := request.UserFrom(r.Context())
	watch := r.URL.Query().Has("watch")
	return func(w http.ResponseWriter, req *http.Request) {
		if !r.Relayed {
			w.WriteHeader(http.StatusForbidden)
		}
		_, _ = io.WriteString(w, caller.GetName())
		if watch {
			_ = http.NewResponseController(w).Flush()
			<-req.Context().Done()
			close(q.ended)
		}
	}, watch, nil
}

func TestLeaderAnswersAQueryInTheNameOfItsCaller(t *testing.T) {
	api := whoAsks{make(chan struct{})}
	_, other, where := pair(t, options{set: func(_ *intake.Options, s *intake.ServerOptions) { s.Queries = api }}, options{})
	query := func(path string) (*http.Response, error) {
		req := newRequest(t.Context(), t, http.MethodGet, "/apis/query.example.com/v1/"+path, nil, "Authorization", "Bearer of-jane")
		return other.relay.Query(t.Context(), req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})))
	}
	response, err := query("things")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	if err := errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != http.StatusOK || string(body) != "jane" {
		t.Errorf("answered %d: %q (%v)", response.StatusCode, body, err)
	}
	// A watch ends at the leader with its client here.
	if response, err = query("things?watch=true"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(response.Body, body); err != nil || string(body) != "jane" {
		t.Errorf("the watch begins with %q (%v)", body, err)
	}
	_ = response.Body.Close()
	select {
	case <-api.ended:
	case <-time.After(await.Timeout):
		t.Error("the watch goes on at the leader")
	}
	where.leads(other)
	other.relay.SetLeader(election.Announcement{})
	if _, err := query("things"); err == nil {
		t.Error("without a leader, the query is answered")
	}
}

// held is an API whose watches begin, and whose other answers wait for the release.
type held struct {
	whoAsks
	release chan struct{}
}

func (q held) Query(r intake.Query) (http.HandlerFunc, bool, error) {
	watch := r.URL.Query().Has("watch")
	return func(w http.ResponseWriter, req *http.Request) {
		if !watch {
			<-q.release
			return
		}
		_ = http.NewResponseController(w).Flush()
		<-req.Context().Done()
	}, watch, nil
}

// As many queries and watches as a replica answers at once fit on its connections to the leader.
func TestQueriesDoNotWaitForStreamsToTheLeader(t *testing.T) {
	const each = 64 // of queries, and of watches
	api := held{release: make(chan struct{})}
	leader := newReplica(t, options{set: func(_ *intake.Options, s *intake.ServerOptions) { s.Queries = api }})
	other := newReplica(t, options{})
	var arrived atomic.Int32
	listen(t, leader, func(s *httptest.Server) {
		next := s.Config.Handler
		s.Config.HTTP2.MaxConcurrentStreams = 100 // as of eventd
		s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			arrived.Add(1)
			next.ServeHTTP(w, req)
		})
	}).leads(other)
	leader.lead(t)
	query := func(n int, path string) (*http.Response, error) {
		req := newRequest(t.Context(), t, http.MethodGet, "/apis/query.example.com/v1/"+path, nil)
		return other.relay.Query(t.Context(), req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: fmt.Sprint("user-", n)})))
	}
	for n := range each {
		response, err := query(n, "things?watch=true")
		if err != nil || response.StatusCode != http.StatusOK {
			t.Fatalf("watch %d: %v, %v", n, response, err)
		}
		defer func() { _ = response.Body.Close() }()
	}
	answered := make(chan error, each)
	for n := range each {
		go func() {
			response, err := query(n, "things")
			if err == nil {
				_ = response.Body.Close()
			}
			answered <- err
		}()
	}
	await.Until(t, "all are at the leader, or one is refused", func() bool { return arrived.Load() == 2*each || len(answered) > 0 })
	close(api.release)
	for range each {
		if err := <-answered; err != nil {
			t.Error(err)
		}
	}
}

// A leader that refuses this replica, or cannot be reached, has not refused the caller, who is not told where it is.
func TestFailuresOfAQueryAreThoseOfThisReplica(t *testing.T) {
	other := newReplica(t, options{})
	refusing := listen(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusUnauthorized) }))
	gone := listen(t, http.NotFoundHandler())
	gone.Close()
	for want, leader := range map[string]*listening{
		"the leader does not accept this replica's token": refusing,
		"the leader cannot be reached":                    gone,
	} {
		leader.leads(other)
		req := newRequest(t.Context(), t, http.MethodGet, "/apis/query.example.com/v1/things", nil)
		response, err := other.relay.Query(t.Context(), req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})))
		if err == nil {
			_ = response.Body.Close()
			t.Fatalf("answered %d; want: %s", response.StatusCode, want)
		}
		if err.Error() != want {
			t.Errorf("the error is %q, not %q", err, want)
		}
	}
}

// The connections to a former leader end with the last watch on them.
func TestAWatchThatHasEndedKeepsNoConnectionToAFormerLeader(t *testing.T) {
	api := whoAsks{make(chan struct{})}
	leader := newReplica(t, options{set: func(_ *intake.Options, s *intake.ServerOptions) { s.Queries = api }})
	other := newReplica(t, options{})
	where := listen(t, leader)
	leader.lead(t)
	where.leads(other)
	req := newRequest(t.Context(), t, http.MethodGet, "/apis/query.example.com/v1/things?watch=true", nil)
	response, err := other.relay.Query(t.Context(), req.WithContext(request.WithUser(req.Context(), &user.DefaultInfo{Name: "jane"})))
	if err != nil {
		t.Fatal(err)
	}
	other.relay.SetLeader(election.Announcement{})
	_ = response.Body.Close()
	await.Until(t, "the connections are closed", func() bool { return where.open.Load() == 0 })
}
