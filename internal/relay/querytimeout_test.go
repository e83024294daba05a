package relay

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/election"
)

// leaderOf is a leader that has accepted a connection, and handles requests with a function.
type leaderOf func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (l leaderOf) RoundTrip(req *http.Request) (*http.Response, error) { return l(req) }

// A leader may accept a query and never answer. Once its answer has begun, that may take any time: it may be a watch.
func TestAQueryWaitsSomeTimeForTheAnswerToBegin(t *testing.T) {
	for name, test := range map[string]struct {
		begins time.Duration // 0 is never
		want   error
		waited time.Duration
	}{
		"never answered":   {0, errNotConnected, queryTimeout},
		"answered late":    {queryTimeout - 1, nil, queryTimeout - 1},
		"answered at once": {time.Nanosecond, nil, time.Nanosecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &Relay{token: &tokenFile{token: "own"}}
				defer r.Close()
				r.leader = newConnections(election.Announcement{Address: "127.0.0.1:1", CertificateSHA256: "none"}, 1, &health{})
				r.queries = newConnections(r.leader.server, queryConnections, &health{})
				r.queries.transport.Protocols = new(http.Protocols)
				r.queries.transport.Protocols.SetHTTP1(true) // HTTP/2 would register another leader
				var sent context.Context
				r.queries.transport.RegisterProtocol("https", leaderOf(func(req *http.Request) (*http.Response, error) {
					sent = req.Context()
					var begins <-chan time.Time
					if test.begins > 0 {
						begins = time.After(test.begins)
					}
					select {
					case <-begins:
						return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
					case <-sent.Done():
						return nil, sent.Err()
					}
				}))
				ctx, leave := context.WithTimeout(t.Context(), time.Hour)
				defer leave()
				began := time.Now()
				req := httptest.NewRequest(http.MethodGet, "/apis/query.example.com/v1/things", nil)
				response, err := r.Query(ctx, req.WithContext(request.WithUser(ctx, &user.DefaultInfo{Name: "jane"})))
				if waited := time.Since(began); !errors.Is(err, test.want) || waited != test.waited {
					t.Fatalf("after %s: %v", waited, err)
				}
				if err != nil {
					return
				}
				time.Sleep(10 * time.Minute)
				if sent.Err() != nil {
					t.Error("the answer is cut")
				}
				_ = response.Body.Close()
			})
		})
	}
}
