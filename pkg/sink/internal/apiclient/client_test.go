package apiclient

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
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
			_, err := clientFor(t, config).Create(ctx, occurrence.CoreV1, sinktest.Event(false))
			if a := Classify(VerbCreate, nil, err); a.Class != ClassUnreachable {
				t.Errorf("%s: %v", a.Class, err)
			}
		})
	}
}

// Nor was anything written by a request that did not even get as far as to need a
// connection.
func TestRequestsThatNeverLeftAreNotLost(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	defer s.Close()
	spent := flowcontrol.NewTokenBucketRateLimiter(0.001, 1)
	spent.Accept()
	noCredentials := &api.ExecConfig{
		Command: filepath.Join(t.TempDir(), "none"), APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: api.NeverExecInteractiveMode,
	}
	for name, client := range map[string]*Client{
		"the client's rate limit is used up": clientFor(t, &rest.Config{Host: s.URL, RateLimiter: spent}),
		"there are no credentials":           connect(t, &rest.Config{Host: s.URL, ExecProvider: noCredentials}),
	} {
		for _, a := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err := client.Create(ctx, a, sinktest.Event(true))
			if got := Classify(VerbCreate, nil, err); got.Class != ClassUnreachable {
				t.Errorf("%s: %s: %v", name, got.Class, err)
			}
			_, err = client.Patch(ctx, a, "ns", "e", []byte("{}"))
			if got := Classify(VerbPatch, nil, err); got.Class != ClassUnreachable {
				t.Errorf("%s, to a patch: %s: %v", name, got.Class, err)
			}
		}
	}
}

// An Event whose namespace cannot stand in a URL is nobody's fault but its own.
func TestEventOfWhichNoRequestCanBeMadeIsInvalid(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") }))
	defer s.Close()
	for name, client := range map[string]*Client{
		"over client-go's connections": clientFor(t, &rest.Config{Host: s.URL}),
		"over the sink's own":          connect(t, &rest.Config{Host: s.URL}),
	} {
		event := sinktest.Event(false)
		event.Namespace = "a/b"
		_, err := client.Create(t.Context(), occurrence.CoreV1, event)
		if a := Classify(VerbCreate, nil, err); a.Class != ClassRefused || a.Reason != occurrence.Invalid || !a.Unsent {
			t.Errorf("%s: %+v", name, a)
		}
		_, err = client.Patch(t.Context(), occurrence.CoreV1, "ns", "50%", []byte("{}"))
		if a := Classify(VerbPatch, nil, err); a.Class != ClassRefused || a.Reason != occurrence.Invalid || !a.Unsent {
			t.Errorf("%s, a patch: %+v", name, a)
		}
	}
}

// Where something makes a request again that had a connection before, the first may
// have been a write, whatever becomes of the second.
func TestRequestThatHadAConnectionOnceMayHaveBeenSent(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	defer s.Close()
	again := func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, err := rt.RoundTrip(r); err == nil {
				t.Error("there is an answer")
			}
			return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
		})
	}
	for name, client := range map[string]*Client{
		"over client-go's connections": clientFor(t, &rest.Config{Host: s.URL, WrapTransport: again}),
		"over the sink's own":          connect(t, &rest.Config{Host: s.URL, WrapTransport: again}),
	} {
		_, err := client.Create(t.Context(), occurrence.CoreV1, sinktest.Event(false))
		if a := Classify(VerbCreate, nil, err); a.Class != ClassLost {
			t.Errorf("%s: %s: %v", name, a.Class, err)
		}
	}
}

// transparent shows what it is around, and does what it likes.
type transparent struct {
	roundTripper
	around http.RoundTripper
}

func (t transparent) WrappedRoundTripper() http.RoundTripper { return t.around }

// What is in the place of the transport, or around it, may have sent a request in
// any way.
func TestRequestsOfWhichNothingIsToldMayHaveBeenSent(t *testing.T) {
	fails := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errLost })
	for name, config := range map[string]*rest.Config{
		"in its place": {Transport: fails},
		"around it":    {WrapTransport: func(http.RoundTripper) http.RoundTripper { return fails }},
		"around it, as client-go's own wrappers are": {
			WrapTransport: func(rt http.RoundTripper) http.RoundTripper { return transparent{fails, rt} },
		},
	} {
		_, err := connect(t, config).Create(t.Context(), occurrence.CoreV1, sinktest.Event(false))
		if a := Classify(VerbCreate, nil, err); a.Class != ClassLost {
			t.Errorf("%s: %s: %v", name, a.Class, err)
		}
	}
}

// Priority and fairness says Retry-After in the header alone, under plain text; the
// apiserver, in a Status as well; what stands in front of it may say it in the header
// alone, whatever the body is.
func TestRetryAfterIsReadFromTheHeader(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"later","code":%d%s}`
	for name, test := range map[string]struct{ contentType, body, details string }{
		"text":                         {"text/plain", "later", ""},
		"a Status":                     {"application/json", status, ""},
		"a Status with other details":  {"application/json", status, `,"details":{"kind":"events"}`},
		"a Status that says it itself": {"application/json", status, `,"details":{"retryAfterSeconds":7}`},
	} {
		for _, code := range []int{429, 503} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", test.contentType)
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(code)
					if test.body == status {
						fmt.Fprintf(w, status, code, test.details)
					} else {
						fmt.Fprint(w, test.body)
					}
				}))
				defer s.Close()
				_, err := clientFor(t, &rest.Config{Host: s.URL}).Create(t.Context(), occurrence.CoreV1, sinktest.Event(false))
				if a := Classify(VerbCreate, nil, err); a.RetryAfter != 7*time.Second || a.Code != code {
					t.Errorf("%v: ask again after %v", err, a.RetryAfter)
				}
			})
		}
	}
}
