package apiclient

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"go.uber.org/goleak"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/sinktest"
	"github.com/eventd/eventd/test/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }

var (
	eventsResource = schema.GroupResource{Resource: "events"}
	errLost        = errors.New("connection lost")
	errRefused     = &net.OpError{Op: "dial", Err: errors.New("refused")}
)

// connect returns a client with connections of its own.
func connect(t *testing.T, config *rest.Config) *Client {
	t.Helper()
	client, err := NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// clientFor returns a client over client-go's connections.
func clientFor(t *testing.T, config *rest.Config) *Client {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return New(clients.CoreV1().RESTClient(), clients.EventsV1().RESTClient())
}

// create creates an Event with a name that the apiserver chooses.
func create(ctx context.Context, client *Client, api occurrence.API, namespace string) (*corev1.Event, error) {
	return client.Create(ctx, api, sinktest.Unnamed(namespace, api == occurrence.EventsV1))
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// serve starts a server for one test.
func serve(t *testing.T, handle http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(handle)
	t.Cleanup(s.Close)
	return s
}

// transparent has a wrapped round tripper, and sends requests in its own way.
type transparent struct {
	roundTripper
	wrapped http.RoundTripper
}

func (t transparent) WrappedRoundTripper() http.RoundTripper { return t.wrapped }

// A request that had no connection did not take effect, whatever was in the way. If a
// request had one, or if that is unknown, it may have.
func TestClassOfRequestsWithoutAnAnswer(t *testing.T) {
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
	unused := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	spent := flowcontrol.NewTokenBucketRateLimiter(0.001, 1)
	spent.Accept()
	noCredentials := &api.ExecConfig{
		Command: filepath.Join(t.TempDir(), "none"), APIVersion: "client.authentication.k8s.io/v1",
		InteractiveMode: api.NeverExecInteractiveMode,
	}
	aborting := serve(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	again := func(rt http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if _, err := rt.RoundTrip(r); err == nil {
				t.Error("there is an answer")
			}
			return nil, errRefused
		})
	}
	fails := roundTripper(func(*http.Request) (*http.Response, error) { return nil, errLost })
	opaqueWrapper := func(http.RoundTripper) http.RoundTripper { return fails }
	transparentWrapper := func(rt http.RoundTripper) http.RoundTripper { return transparent{fails, rt} }
	type newClient = func(*testing.T, *rest.Config) *Client
	both := []newClient{clientFor, connect}
	for name, test := range map[string]struct {
		config  *rest.Config
		clients []newClient
		want    Class
	}{
		"the apiserver refuses":            {&rest.Config{Host: "https://" + nobody.Host}, both, ClassUnreachable},
		"the proxy refuses":                {&rest.Config{Host: "https://example.com", Proxy: http.ProxyURL(nobody)}, both, ClassUnreachable},
		"the host does not answer":         {&rest.Config{Host: "https://" + nobody.Host, Dial: unanswered}, both, ClassUnreachable},
		"the rate limit is used up":        {&rest.Config{Host: unused.URL, RateLimiter: spent}, both[:1], ClassUnreachable},
		"there are no credentials":         {&rest.Config{Host: unused.URL, ExecProvider: noCredentials}, both[1:], ClassUnreachable},
		"a wrapper that sends again":       {&rest.Config{Host: aborting.URL, WrapTransport: again}, both, ClassLost},
		"a transport of the caller's":      {&rest.Config{Transport: fails}, both[1:], ClassLost},
		"a wrapper that shows no wrapped":  {&rest.Config{WrapTransport: opaqueWrapper}, both[1:], ClassLost},
		"a wrapper that shows its wrapped": {&rest.Config{WrapTransport: transparentWrapper}, both[1:], ClassLost},
	} {
		t.Run(name, func(t *testing.T) {
			for _, client := range test.clients {
				for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
					timeout := time.Minute
					if test.config.Dial != nil {
						timeout = 200 * time.Millisecond
					}
					ctx, cancel := context.WithTimeout(t.Context(), timeout)
					defer cancel()
					c := client(t, test.config)
					_, err := create(ctx, c, api, "ns")
					if got := Classify(VerbCreate, nil, err); got.Class != test.want {
						t.Errorf("a create: %s, want %s: %v", got.Class, test.want, err)
					}
					_, err = c.Patch(ctx, api, "ns", "e", []byte("{}"))
					if got := Classify(VerbPatch, nil, err); got.Class != test.want {
						t.Errorf("a patch: %s, want %s: %v", got.Class, test.want, err)
					}
				}
			}
		})
	}
}

// Only the Event itself is refused if its namespace or name cannot be part of a URL.
func TestEventOfWhichNoRequestCanBeMadeIsInvalid(t *testing.T) {
	unused := serve(t, func(http.ResponseWriter, *http.Request) { t.Error("a request was sent") })
	config := &rest.Config{Host: unused.URL}
	for name, client := range map[string]*Client{"over client-go's connections": clientFor(t, config), "over its own": connect(t, config)} {
		_, createErr := create(t.Context(), client, occurrence.CoreV1, "a/b")
		_, patchErr := client.Patch(t.Context(), occurrence.CoreV1, "ns", "50%", []byte("{}"))
		for _, a := range []Answer{Classify(VerbCreate, nil, createErr), Classify(VerbPatch, nil, patchErr)} {
			if a.Class != ClassRefused || a.Reason != occurrence.Invalid || !a.Unsent {
				t.Errorf("%s: %s: %+v", name, a.Verb, a)
			}
		}
	}
}

// Priority and fairness sends Retry-After in the header alone, under plain text. The
// apiserver sends it in a Status as well. A proxy may send it in the header
// alone, whatever the body is.
func TestRetryAfterIsReadFromTheHeader(t *testing.T) {
	const status = `{"kind":"Status","apiVersion":"v1","status":"Failure","message":"later","code":%d%s}`
	for name, test := range map[string]struct{ contentType, format, details string }{
		"text":                           {"text/plain", "later (%d%s)", ""},
		"a Status":                       {"application/json", status, ""},
		"a Status with other details":    {"application/json", status, `,"details":{"kind":"events"}`},
		"a Status that has it in itself": {"application/json", status, `,"details":{"retryAfterSeconds":7}`},
	} {
		for _, code := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
			t.Run(fmt.Sprint(name, " ", code), func(t *testing.T) {
				s := serve(t, func(w http.ResponseWriter, _ *http.Request) {
					w.Header().Set("Content-Type", test.contentType)
					w.Header().Set("Retry-After", "7")
					w.WriteHeader(code)
					fmt.Fprintf(w, test.format, code, test.details)
				})
				_, err := create(t.Context(), clientFor(t, &rest.Config{Host: s.URL}), occurrence.CoreV1, "ns")
				if a := Classify(VerbCreate, nil, err); a.RetryAfter != 7*time.Second || a.Code != code {
					t.Errorf("%v: retry after %v", err, a.RetryAfter)
				}
			})
		}
	}
}

func TestClasses(t *testing.T) {
	status := func(code int) error {
		return apierrors.NewGenericServerResponse(code, "patch", eventsResource, "e", "", 0, true)
	}
	namespaces := schema.GroupResource{Resource: "namespaces"}
	terminating := apierrors.NewForbidden(eventsResource, "e", errors.New("it is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	transport := func(err error) error { return &url.Error{Op: "Patch", URL: "https://x", Err: err} }
	for name, test := range map[string]struct {
		err    error
		verb   Verb
		class  Class
		reason occurrence.Reason
	}{
		"success":                    {nil, VerbPatch, ClassOK, ""},
		"exists":                     {apierrors.NewAlreadyExists(eventsResource, "e"), VerbCreate, ClassExists, ""},
		"conflict":                   {apierrors.NewConflict(eventsResource, "e", nil), VerbPatch, ClassExists, ""},
		"expired":                    {apierrors.NewNotFound(eventsResource, "e"), VerbPatch, ClassNotFound, ""},
		"expired before it was read": {apierrors.NewNotFound(eventsResource, "e"), VerbRead, ClassNotFound, ""},
		"no namespace":               {apierrors.NewNotFound(namespaces, "ns"), VerbCreate, ClassRefused, occurrence.NamespaceNotFound},
		"no namespace to patch in":   {apierrors.NewNotFound(namespaces, "ns"), VerbPatch, ClassRefused, occurrence.NamespaceNotFound},
		"no such API":                {apierrors.NewNotFound(eventsResource, "e"), VerbCreate, ClassRefused, occurrence.Refused},
		"namespace terminating":      {terminating, VerbCreate, ClassRefused, occurrence.NamespaceTerminating},
		"400":                        {status(400), VerbCreate, ClassRefused, occurrence.Invalid},
		"401":                        {status(401), VerbCreate, ClassRetry, ""},
		"403":                        {status(403), VerbCreate, ClassRefused, occurrence.Forbidden},
		"403 since it is not ready":  {apierrors.NewForbidden(eventsResource, "e", errors.New("not yet ready to handle request")), VerbCreate, ClassRetry, ""},
		"405":                        {status(405), VerbCreate, ClassRefused, occurrence.Refused},
		"408":                        {status(408), VerbCreate, ClassLost, ""},
		"413":                        {status(413), VerbCreate, ClassRefused, occurrence.Invalid},
		"415":                        {status(415), VerbCreate, ClassRefused, occurrence.Refused},
		"422":                        {status(422), VerbCreate, ClassRefused, occurrence.Invalid},
		"429":                        {status(429), VerbCreate, ClassRetry, ""},
		"500":                        {status(500), VerbPatch, ClassLost, ""},
		"502":                        {status(502), VerbPatch, ClassLost, ""},
		"503":                        {status(503), VerbPatch, ClassLost, ""},
		"504":                        {status(504), VerbPatch, ClassLost, ""},
		"too large for etcd":         {apierrors.NewInternalError(errors.New("etcdserver: request is too large")), VerbCreate, ClassRefused, occurrence.Invalid},
		"wrapped":                    {fmt.Errorf("writing: %w", status(429)), VerbCreate, ClassRetry, ""},
		"not connected":              {transport(errRefused), VerbCreate, ClassUnreachable, ""},
		"connection broken":          {transport(&net.OpError{Op: "read", Err: errors.New("reset")}), VerbCreate, ClassLost, ""},
		"not sent":                   {&UnsentError{errLost, ClassUnreachable}, VerbCreate, ClassUnreachable, ""},
		"not sent, others are":       {&UnsentError{errLost, ClassRetry}, VerbCreate, ClassRetry, ""},
		"not to be sent":             {&UnsentError{errLost, ClassRefused}, VerbCreate, ClassRefused, occurrence.Invalid},
		"sent, and not connected":    {&sentError{transport(errRefused)}, VerbCreate, ClassLost, ""},
		"sent, and refused":          {&sentError{status(422)}, VerbCreate, ClassRefused, occurrence.Invalid},
		"out of time":                {transport(context.DeadlineExceeded), VerbCreate, ClassLost, ""},
	} {
		if got := Classify(test.verb, &corev1.Event{}, test.err); got.Class != test.class || got.Reason != test.reason {
			t.Errorf("%s: %s %q, want %s %q", name, got.Class, got.Reason, test.class, test.reason)
		}
	}
	if got := Classify(VerbPatch, nil, apierrors.NewTooManyRequests("", 7)); got.RetryAfter != 7*time.Second || got.Code != http.StatusTooManyRequests {
		t.Errorf("a suggested delay is read as %+v", got)
	}
	if got := Classify(VerbCreate, nil, apierrors.NewForbidden(eventsResource, "e", errors.New("denied by a webhook"))); got.Denied {
		t.Error("a denial by an admission plugin counts as one by RBAC")
	}
}

// FuzzUpdate reads any JSON as an Event, and writes it back with a patch: what is
// patched has the new count, and what an API can read it can still read.
func FuzzUpdate(f *testing.F) {
	f.Add([]byte(`{"apiVersion":"v1","kind":"Event","metadata":{"name":"a","annotations":{"a":"b"}},"count":1,"unknown":{"x":[1]}}`))
	f.Add([]byte(`{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"a"},"eventTime":"2026-01-02T03:04:05.000006Z","series":{"count":2}}`))
	f.Add([]byte(`{"count":1,"count":2,"Count":3}`))
	f.Add([]byte(`null`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, event []byte) {
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			if _, err := Decode(api, event); err != nil {
				continue
			}
			patched, err := jsonpatch.MergePatch(event, []byte(`{"metadata":{"annotations":{"eventd.io/identity":"d"}}}`))
			if err != nil {
				continue // it is no object
			}
			object, err := Decode(api, patched)
			if err != nil {
				t.Fatalf("%s can be read, and not when it was patched: %v", event, err)
			}
			if object.Annotations["eventd.io/identity"] != "d" {
				t.Errorf("%s is patched to %s", event, patched)
			}
		}
	})
}
