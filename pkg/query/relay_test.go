package query_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query"
)

// relayTo returns a leader that answers each query.
func relayTo(answer func(*http.Request) (int, string)) func(context.Context, *http.Request) (*http.Response, error) {
	return func(_ context.Context, req *http.Request) (*http.Response, error) {
		code, body := answer(req)
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"text/plain"}}, Body: io.NopCloser(strings.NewReader(body))}, nil
	}
}

func TestWithoutALeaderAQueryIsAnswered503(t *testing.T) {
	s := newScene(t, func(o *query.Options) {
		o.Leading = func() bool { return false }
		o.Relay = func(context.Context, *http.Request) (*http.Response, error) { return nil, errors.New("no leader") }
	})
	for _, path := range []string{"top", "top?watch=true", "why?name=web-0", "drops"} {
		a := s.Do(t, http.MethodGet, root+path, nil)
		a.Want(t, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable)
		if a.Header.Get("Retry-After") == "" {
			t.Errorf("%s is answered without Retry-After", path)
		}
	}
	if a := s.Do(t, http.MethodGet, root+"status", nil); a.Code != http.StatusOK {
		t.Errorf("the status is answered %d: %s", a.Code, a.Body)
	}
}

// closing is a body that notes whether it was closed.
type closing struct {
	io.Reader
	closed bool
}

func (b *closing) Close() error {
	b.closed = true
	return nil
}

// Of the leader's answer, some headers and a bounded body are passed on, and its connection is freed.
func TestTheAnswerOfALeaderIsBounded(t *testing.T) {
	body := &closing{Reader: strings.NewReader(strings.Repeat("x", 32<<20))}
	s := newScene(t, func(o *query.Options) {
		o.Leading = func() bool { return false }
		o.Relay = func(context.Context, *http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: http.StatusTooManyRequests, Header: http.Header{"Retry-After": {"7"}, "Set-Cookie": {"a=b"}}, Body: body}, nil
		}
	})
	a := s.Do(t, http.MethodGet, root+"top", nil)
	if a.Code != http.StatusTooManyRequests || a.Header.Get("Retry-After") != "7" || a.Header.Get("Set-Cookie") != "" || len(a.Body) > 16<<20 || !body.closed {
		t.Errorf("answered %d with %v and %d bytes, closed: %v", a.Code, a.Header, len(a.Body), body.closed)
	}
}
