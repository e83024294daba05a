package query_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/test/intaketest"
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

// A leader that does not answer the queries that are relayed delays none that this replica answers.
func TestQueriesThatWaitForTheLeaderDelayNoOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := make(chan struct{})
		s := newScene(t, func(o *query.Options) {
			o.Leading = func() bool { return false }
			o.Relay = relayTo(func(*http.Request) (int, string) {
				<-answers
				return http.StatusOK, "top"
			})
		})
		var relayed []<-chan intaketest.Answer
		for range 20 { // more than are answered at once
			relayed = append(relayed, intaketest.Background(func() intaketest.Answer { return s.Do(t, http.MethodGet, root+"top", nil) }))
		}
		synctest.Wait()
		began := time.Now()
		a := s.Do(t, http.MethodGet, root+"timeline", nil, "Authorization", "Bearer another")
		if waited := time.Since(began); a.Code != http.StatusOK || waited > 0 {
			t.Errorf("answered %d after %s: %s", a.Code, waited, a.Body)
		}
		close(answers)
		for _, a := range relayed {
			(<-a).Want(t, http.StatusOK, "")
		}
	})
}
