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
