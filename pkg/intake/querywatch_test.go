package intake_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
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

func (*standbys) PeerUser() string { return "" }

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
