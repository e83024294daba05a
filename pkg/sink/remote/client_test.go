package remote

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/occurrence"
)

func clientOf(t *testing.T, host string) Client {
	t.Helper()
	c, err := NewClientForConfig(&rest.Config{Host: host, BearerToken: "of-the-tester"})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A batch is posted to the path of its API, below that of the server.
func TestBatchIsPostedToThePathOfItsAPI(t *testing.T) {
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		timeout, err := time.ParseDuration(req.URL.Query().Get("timeout"))
		if req.Header.Get("Accept-Encoding") != "" {
			t.Error("the client is not made from sink.ConfigFor")
		}
		if err != nil || timeout <= 0 || timeout > 10*time.Second || req.URL.Query().Get("batch") != "true" {
			t.Errorf("%s: %v", req.URL.RawQuery, err)
		}
		got = append(got, strings.Join([]string{req.Method, req.URL.EscapedPath(), req.Header.Get("Content-Type"), req.Header.Get("Accept"),
			req.Header.Get("Authorization"), string(body)}, " "))
		_ = json.NewEncoder(w).Encode(&batch.Answer{TypeMeta: metav1.TypeMeta{APIVersion: batch.APIVersion, Kind: batch.Kind}, Code: 202})
	}))
	defer s.Close()
	c := clientOf(t, s.URL+"/prefix")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for api, path := range map[occurrence.API]string{
		occurrence.CoreV1:   "/prefix/api/v1/namespaces/a%2Fb/events",
		occurrence.EventsV1: "/prefix/apis/events.k8s.io/v1/namespaces/a%2Fb/events",
	} {
		got = nil
		answer, err := c.Post(ctx, api, "a/b", []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := answer.Statuses(1); err != nil {
			t.Error(err)
		}
		if want := "POST " + path + " application/vnd.kubernetes.protobuf application/json Bearer of-the-tester x"; len(got) != 1 || got[0] != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

// eventd answers before the client gives up, but has a second at the least.
func TestTimeoutOfABatchIsLessThanThatOfItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for timeout, want := range map[time.Duration]string{0: "", 10 * time.Second: "9s", time.Second: "1s", time.Millisecond: "1s"} {
			ctx := t.Context()
			if timeout > 0 {
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, timeout)
				defer cancel()
			}
			answered := transport(func(req *http.Request) (*http.Response, error) {
				if got := req.URL.Query().Get("timeout"); got != want {
					t.Errorf("%v: the timeout is %q, want %q", timeout, got, want)
				}
				return nil, errors.New("seen")
			})
			if _, err := clientOver(t, answered).Post(ctx, occurrence.CoreV1, "ns", nil); err == nil {
				t.Error("no error")
			}
		}
	})
}

// transport is one that is not client-go's, which tells nothing of its connections.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

func clientOver(t *testing.T, transport http.RoundTripper) Client {
	t.Helper()
	c, err := NewClientForConfig(&rest.Config{Host: "http://eventd.example.com", Transport: transport})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Without a connection nothing was sent. A transport that may not report its connections tells so by an error of a dial
// only, maybe of one to a proxy.
func TestRequestWithoutAConnectionIsUnsent(t *testing.T) {
	fails := func(err error) http.RoundTripper {
		return transport(func(*http.Request) (*http.Response, error) { return nil, err })
	}
	dial := &net.OpError{Op: "dial", Err: errors.New("refused")}
	for name, test := range map[string]struct {
		transport http.RoundTripper
		unsent    bool
	}{
		"dial":             {fails(dial), true},
		"dial to a proxy":  {fails(&net.OpError{Op: "proxyconnect", Err: dial}), true},
		"read":             {fails(&net.OpError{Op: "read", Err: errors.New("reset")}), false},
		"read from it":     {fails(&net.OpError{Op: "proxyconnect", Err: &net.OpError{Op: "read", Err: errors.New("reset")}}), false},
		"another error":    {fails(errors.New("broken")), false},
		"client-go's dial": {nil, true},
		"a wrapper's":      {nil, false},
	} {
		config := &rest.Config{Host: "http://eventd.example.com", Transport: test.transport}
		if test.transport == nil {
			config.Dial = func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no network") }
		}
		if name == "a wrapper's" {
			config.Wrap(func(http.RoundTripper) http.RoundTripper { return fails(errors.New("broken")) })
		}
		c, err := NewClientForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Post(t.Context(), occurrence.CoreV1, "ns", nil)
		if _, unsent := errors.AsType[*UnsentError](err); err == nil || unsent != test.unsent {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// endless is a body without an end, in which a limit would be valid JSON.
type endless struct {
	begin  io.Reader
	read   int
	closed bool
}

func (e *endless) Read(p []byte) (int, error) {
	n, err := e.begin.Read(p)
	if err == io.EOF {
		for n = range p {
			p[n] = ' '
		}
		n, err = len(p), nil
	}
	e.read += n
	return n, err
}

func (e *endless) Close() error { e.closed = true; return nil }

// Of an answer that does not end, no more than the limit is read.
func TestAnswersAreLimited(t *testing.T) {
	body := &endless{begin: strings.NewReader(`{"kind":"EventListAnswer","apiVersion":"batch.eventd.io/v1alpha1","code":202}`)}
	c := clientOver(t, transport(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: body}, nil
	}))
	answer, err := c.Post(t.Context(), occurrence.CoreV1, "ns", nil)
	if err == nil || answer != nil || body.read > maxAnswerBytes+1 || !body.closed {
		t.Errorf("%v after %d bytes, closed is %t", err, body.read, body.closed)
	}
}

// Errors tell whether a batch may have been handled.
func TestErrorsTellWhetherABatchWasSent(t *testing.T) {
	var unsent *UnsentError
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	host := "http://" + listener.Addr().String()
	_ = listener.Close()
	if _, err := clientOf(t, host).Post(t.Context(), occurrence.CoreV1, "ns", nil); !errors.As(err, &unsent) {
		t.Errorf("refused: %v", err)
	}
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		t.Errorf("a redirect is followed, with the credentials %q", req.Header.Get("Authorization"))
	}))
	defer elsewhere.Close()
	const answered = `{"kind":"EventListAnswer","apiVersion":"batch.eventd.io/v1alpha1","code":202}`
	for name, test := range map[string]struct {
		answer func(http.ResponseWriter)
		code   int32 // of a Status; 0 for another error
		after  int32
	}{
		"cut":         {answer: func(http.ResponseWriter) { panic(http.ErrAbortHandler) }},
		"no answer":   {answer: func(w http.ResponseWriter) { _, _ = io.WriteString(w, "hello") }},
		"no Status":   {answer: func(w http.ResponseWriter) { w.Header().Set("Retry-After", "7"); w.WriteHeader(503) }, code: 503, after: 7},
		"a Status":    {answer: func(w http.ResponseWriter) { w.WriteHeader(403); _ = json.NewEncoder(w).Encode(status(403)) }, code: 403},
		"no failure":  {answer: func(w http.ResponseWriter) { w.WriteHeader(502); _, _ = io.WriteString(w, `{"code":200}`) }, code: 502},
		"other codes": {answer: func(w http.ResponseWriter) { w.WriteHeader(503); _ = json.NewEncoder(w).Encode(status(403)) }, code: 503},
		"another 2xx": {answer: func(w http.ResponseWriter) { w.WriteHeader(202); _, _ = io.WriteString(w, answered) }, code: 202},
		"for long":    {answer: func(w http.ResponseWriter) { w.Header().Set("Retry-After", "99999999999"); w.WriteHeader(429) }, code: 429, after: 1 << 20},
		"not for now": {answer: func(w http.ResponseWriter) { w.Header().Set("Retry-After", "-1"); w.WriteHeader(429) }, code: 429},
		"shorter":     {answer: func(w http.ResponseWriter) { w.WriteHeader(200); _, _ = io.WriteString(w, answered[:20]) }},
		"a long text": {answer: func(w http.ResponseWriter) { w.WriteHeader(502); _, _ = w.Write(make([]byte, maxAnswerBytes)) }, code: 502},
		"a redirect": {answer: func(w http.ResponseWriter) {
			w.Header().Set("Location", elsewhere.URL)
			w.WriteHeader(307)
		}, code: 307},
		"a long Status": {answer: func(w http.ResponseWriter) {
			s := status(500)
			s.Message = strings.Repeat("x", 1<<20)
			w.WriteHeader(500)
			_ = json.NewEncoder(w).Encode(&s)
		}, code: 500},
		"many others": {answer: func(w http.ResponseWriter) {
			_, _ = io.WriteString(w, `{"others":[`+strings.Repeat("{},", batch.MaxItems)+`{}]}`)
		}},
		"no list":  {answer: func(w http.ResponseWriter) { _, _ = io.WriteString(w, `{"others":7}`) }},
		"too long": {answer: func(w http.ResponseWriter) { _, _ = w.Write(make([]byte, maxAnswerBytes+1)) }},
	} {
		t.Run(name, func(t *testing.T) {
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { test.answer(w) }))
			defer s.Close()
			_, err := clientOf(t, s.URL).Post(t.Context(), occurrence.CoreV1, "ns", []byte("x"))
			if errors.As(err, &unsent) || err == nil {
				t.Fatalf("%v", err)
			}
			if len(err.Error()) > 2<<10 {
				t.Errorf("the error has %d bytes", len(err.Error()))
			}
			status, ok := errors.AsType[*apierrors.StatusError](err)
			if ok != (test.code != 0) {
				t.Fatalf("%v", err)
			}
			if ok && (status.ErrStatus.Code != test.code || status.ErrStatus.Status != metav1.StatusFailure || retryAfterOf(status.ErrStatus.Details) != time.Duration(test.after)*time.Second) {
				t.Errorf("%+v", status.ErrStatus)
			}
		})
	}
}
