package intake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/pkg/intake"
)

// lasting answers watches until their clients go away.
func lasting(q intake.Query) (http.HandlerFunc, bool, error) {
	return func(w http.ResponseWriter, req *http.Request) {
		w.WriteHeader(http.StatusOK)
		if q.URL.Query().Has("watch") {
			<-req.Context().Done()
		}
	}, q.URL.Query().Has("watch"), nil
}

// A watch ends with its credentials, as far as the apiserver says that they are revoked.
func TestWatchEndsWhenItsTokenIsRevoked(t *testing.T) {
	for name, test := range map[string]struct {
		err  error
		ends bool
	}{
		"revoked":              {nil, true},
		"expired":              {errors.New("the token has expired"), true},
		"no apiserver":         {&url.Error{Op: "Post", URL: "https://apiserver", Err: context.DeadlineExceeded}, false},
		"a review that is cut": {context.Canceled, false},
	} {
		bubble(t, name, func(t *testing.T) {
			var revoked atomic.Bool
			s := serve(t, written(), withQueries(lasting), withServer(func(o *intake.ServerOptions) {
				o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
					name := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
					req.Header.Del("Authorization")
					if name == "" || name == "leaver" && revoked.Load() {
						return nil, false, test.err
					}
					return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
				})
			}))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			watch := func(as string) <-chan time.Time {
				ended := make(chan time.Time, 1)
				go func() {
					s.ServeHTTP(newOpenResponse(), newRequest(ctx, t, http.MethodGet, things+"?watch=true", nil, "Authorization", "Bearer "+as))
					ended <- time.Now()
				}()
				return ended
			}
			leaver, other := watch("leaver"), watch("other")
			time.Sleep(time.Minute)
			if open := s.Metric(t, "eventd_query_watches"); open != 2 {
				t.Fatalf("%v watches are open", open)
			}
			revoked.Store(true)
			began := time.Now()
			time.Sleep(time.Minute)
			left := 2
			if test.ends {
				left = 1
			}
			equal(t, "open watches", s.Metric(t, "eventd_query_watches"), float64(left))
			leave()
			if at := <-leaver; test.ends && at.Sub(began) > 20*time.Second {
				t.Errorf("it ends after %s", at.Sub(began))
			}
			<-other
		})
	}
}

// standbys is a Forwarder that reviews the tokens of other replicas.
type standbys struct {
	intake.Forwarder
	rejected atomic.Bool
	reviews  atomic.Int64
}

func (r *standbys) IsPeer(context.Context, string) (bool, error) {
	r.reviews.Add(1)
	return !r.rejected.Load(), nil
}

// The leader does not have the token of a caller whose watch is relayed: the replica that relays it authenticates the
// caller again, and ends it. The token of that replica, which may be rotated meanwhile, is for the request alone.
func TestRelayedWatchIsNotAuthenticatedAgainByTheLeader(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		var others standbys
		s := serve(t, written(), withQueries(lasting), withServer(func(o *intake.ServerOptions) { o.Forwarder = &others }))
		jane, err := intake.EncodeUser(&user.DefaultInfo{Name: "jane"})
		if err != nil {
			t.Fatal(err)
		}
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			s.ServeHTTP(newOpenResponse(), newRequest(ctx, t, http.MethodGet, things+"?watch=true", nil,
				"Authorization", "Bearer of-a-replica", intake.AssertedUserHeader, jane))
		}()
		synctest.Wait()
		others.rejected.Store(true)
		time.Sleep(time.Minute)
		equal(t, "open watches", s.Metric(t, "eventd_query_watches"), 1)
		equal(t, "reviews of the token of the replica", others.reviews.Load(), 1)
		leave()
		<-ended
		equal(t, "open watches at the end", s.Metric(t, "eventd_query_watches"), 0)
	})
}

// Whatever unknown callers send, a known one is answered.
func TestStrangersTakeNoPlaceOfQueries(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		reviewed := make(chan struct{})
		s := serve(t, written(), withQueries(lasting), withServer(func(o *intake.ServerOptions) {
			o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
				if strings.HasPrefix(req.Header.Get("Authorization"), "Bearer stranger") {
					<-reviewed
					return nil, false, nil
				}
				return &authenticator.Response{User: &user.DefaultInfo{Name: "reader"}}, true, nil
			})
		}))
		do := func(token, from string) int {
			req := newRequest(t.Context(), t, http.MethodGet, things, nil, "Authorization", "Bearer "+token)
			req.RemoteAddr = from
			w := httptest.NewRecorder()
			s.ServeHTTP(w, req)
			return w.Code
		}
		equal(t, "the first query", do("reader", "10.1.0.1:1"), http.StatusOK)
		var strangers []<-chan int
		for i := range 200 {
			answered := make(chan int, 1)
			strangers = append(strangers, answered)
			go func() { answered <- do(fmt.Sprint("stranger-", i), fmt.Sprintf("10.0.0.%d:1", i%100)) }()
		}
		synctest.Wait()
		for range 3 {
			equal(t, "a query of a known caller", do("reader", "10.1.0.1:1"), http.StatusOK)
		}
		close(reviewed)
		for _, answered := range strangers {
			<-answered
		}
	})
}

// openResponse is a response that may be read while it is written.
type openResponse struct {
	mu sync.Mutex
	httptest.ResponseRecorder
}

func newOpenResponse() *openResponse { return &openResponse{ResponseRecorder: *httptest.NewRecorder()} }

func (r *openResponse) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.ResponseRecorder.Write(p)
}

func (r *openResponse) WriteHeader(code int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ResponseRecorder.WriteHeader(code)
}

func (r *openResponse) Flush() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.ResponseRecorder.Flush()
}

func (r *openResponse) read() (code int, body string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.Code, r.Body.String()
}

// A watch has no timeout, is not buffered, and is in flight nowhere.
func TestWatchLastsAndIsNotBuffered(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := serve(t, written(), named, withQueries(func(q intake.Query) (http.HandlerFunc, bool, error) {
			return func(w http.ResponseWriter, req *http.Request) {
				for range 3 {
					_, _ = w.Write([]byte("frame\n"))
					_ = http.NewResponseController(w).Flush()
					select {
					case <-time.After(5 * time.Minute):
					case <-req.Context().Done():
						return
					}
				}
			}, true, nil
		}))
		ctx, leave := context.WithCancel(t.Context())
		defer leave()
		var open sync.WaitGroup
		watch := func(as string) *openResponse {
			r := newOpenResponse()
			open.Go(func() {
				s.ServeHTTP(r, newRequest(ctx, t, http.MethodGet, things+"?watch=true", nil, "Authorization", "Bearer "+as))
			})
			return r
		}
		var watches []*openResponse
		for range 30 {
			watches = append(watches, watch("reader"))
			synctest.Wait() // so that no more than one is in flight
		}
		codes := map[int]int{}
		for _, w := range watches {
			code, _ := w.read()
			codes[code]++
		}
		// One flow has a third of 64.
		equal(t, "the watches of one user", codes, map[int]int{http.StatusOK: 21, http.StatusTooManyRequests: 9})
		equal(t, "open watches", s.Metric(t, "eventd_query_watches"), 21)
		equal(t, "counted as begun", s.Metric(t, "eventd_query_requests_total", "200"), 21)
		equal(t, "counted as refused", s.Metric(t, "eventd_query_requests_total", "429"), 9)
		another := watch("another")
		synctest.Wait()
		if code, got := another.read(); got != "frame\n" {
			t.Errorf("another user gets %d %q", code, got)
		}
		time.Sleep(6 * time.Minute)
		synctest.Wait()
		if _, got := another.read(); got != "frame\nframe\n" {
			t.Errorf("after six minutes it has %q", got)
		}
		leave()
		open.Wait()
		equal(t, "open watches at the end", s.Metric(t, "eventd_query_watches"), 0)
	})
}

func TestPanicOfAWatchEndsItAlone(t *testing.T) {
	var first atomic.Bool
	s := serve(t, written(), withQueries(func(intake.Query) (http.HandlerFunc, bool, error) {
		if first.CompareAndSwap(false, true) {
			return func(http.ResponseWriter, *http.Request) { panic("no reason") }, true, nil
		}
		return sends("seen"), true, nil
	}))
	func() {
		defer func() { equal(t, "the panic", recover(), any(http.ErrAbortHandler)) }()
		s.Do(t, http.MethodGet, things+"?watch=true", nil)
	}()
	if a := s.Do(t, http.MethodGet, things+"?watch=true", nil); string(a.Body) != "seen" {
		t.Errorf("the next is answered %d: %s", a.Code, a.Body)
	}
}
