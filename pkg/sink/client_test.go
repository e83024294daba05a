package sink

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/occurrence"
)

// Where no connection was made nothing was written, whatever was in the way.
func TestRequestsWithoutAConnectionAreNotLost(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	listener.Close() // nobody listens there now
	nobody := &url.URL{Scheme: "http", Host: listener.Addr().String()}
	unanswered := func(ctx context.Context, _, _ string) (net.Conn, error) {
		select {
		case <-ctx.Done():
		case <-t.Context().Done():
		}
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: context.Cause(ctx)}
	}
	for name, config := range map[string]*rest.Config{
		"the apiserver refuses":    {Host: "https://" + nobody.Host},
		"the proxy refuses":        {Host: "https://example.com", Proxy: http.ProxyURL(nobody)},
		"the host does not answer": {Host: "https://" + nobody.Host, Dial: unanswered},
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := clientFor(t, config).Create(ctx, occurrence.CoreV1, testEvent(false))
			if a := classify(verbCreate, nil, err); a.class != classUnreachable {
				t.Errorf("%s: %v", a.class, err)
			}
		})
	}
}

// Priority and fairness, and what stands in front of an apiserver, say Retry-After
// in the header alone.
func TestRetryAfterIsReadFromTheHeader(t *testing.T) {
	for name, body := range map[string]string{
		"text/plain":       "later",
		"application/json": `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"later","code":%d,"details":{"retryAfterSeconds":7}}`,
	} {
		for _, code := range []int{429, 503} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", name)
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(code)
					if name == "application/json" {
						fmt.Fprintf(w, body, code)
					} else {
						fmt.Fprint(w, body)
					}
				}))
				defer s.Close()
				_, err := clientFor(t, &rest.Config{Host: s.URL}).Create(t.Context(), occurrence.CoreV1, testEvent(false))
				if a := classify(verbCreate, nil, err); a.after != 7*time.Second {
					t.Errorf("%v: ask again after %v", err, a.after)
				}
			})
		}
	}
}
