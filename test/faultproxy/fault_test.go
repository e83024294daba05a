package faultproxy

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptrace"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
)

// Each kind of fault, as seen from both sides.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		fault     Fault
		code      int  // that the client gets, 0 for none
		forwarded bool // the backend gets the write
	}{
		"":                     {Fault{}, 201, true},
		"slow":                 {Slow(Fixed(time.Millisecond), Fixed(time.Millisecond)), 201, true},
		"500 before the write": {BeforeWrite(Status(500)), 500, false},
		"503 in plain text with Retry-After 2 before the write": {BeforeWrite(Status(503).RetryAfter(2).PlainText()), 503, false},
		"stream reset before the write":                         {BeforeWrite(ResetStream), 0, false},
		"connection reset before the write":                     {BeforeWrite(ResetConnection), 0, false},
		"503 with Retry-After 1 after the write":                {AfterWrite(Status(503).RetryAfter(1)), 503, true},
		"stream reset after the write":                          {AfterWrite(ResetStream), 0, true},
		"connection reset after the write":                      {AfterWrite(ResetConnection), 0, true},
		"504, and the write late":                               {LateWrite(nil, Status(504)), 504, true},
		"stream reset, and the write late":                      {LateWrite(Fixed(time.Millisecond), ResetStream), 0, true},
	} {
		t.Run(name, func(t *testing.T) {
			backend, p, c := setUp(t, always(test.fault))
			c.create(t.Context(), "a").want(t, test.code)
			want := Entry{
				Request: Request{Verb: "create", Namespace: "ns", Name: "a"},
				Fault:   name, Forwarded: test.forwarded, Answer: test.code, Ended: true,
			}
			writes := int64(0)
			if test.forwarded {
				want.Status, writes = http.StatusCreated, 1
			}
			if e := onlyEntry(t, p); e != want {
				t.Errorf("recorded is %+v, want %+v", e, want)
			}
			backend.wantWrites(t, writes)
		})
	}
}

// A client takes the answers for those of an apiserver, in JSON and in protobuf.
func TestAnswersAreThoseOfAnAPIServer(t *testing.T) {
	for _, test := range []struct {
		answer Answer
		reason metav1.StatusReason
		after  int
		json   string // how the body begins in JSON
	}{
		{Status(429), metav1.StatusReasonTooManyRequests, 0, `{"kind":"Status","apiVersion":"v1"`},
		{Status(500), metav1.StatusReasonInternalError, 0, `{"kind":"Status","apiVersion":"v1"`},
		{Status(503).RetryAfter(7), metav1.StatusReasonServiceUnavailable, 7, `{"kind":"Status","apiVersion":"v1"`},
		{Status(504), metav1.StatusReasonTimeout, 0, `{"kind":"Status","apiVersion":"v1"`},
		{Status(503).RetryAfter(2).PlainText(), metav1.StatusReasonServiceUnavailable, 2, "Service Unavailable\n"},
	} {
		t.Run(test.answer.String(), func(t *testing.T) {
			_, p, c := setUp(t, always(BeforeWrite(test.answer)))
			if g := c.create(t.Context(), "a"); !strings.HasPrefix(g.Body, test.json) {
				t.Errorf("in JSON the body is %q", g.Body)
			}
			for _, contentType := range []string{"application/json", "application/vnd.kubernetes.protobuf"} {
				config := p.Config()
				config.ContentType, config.AcceptContentTypes = contentType, contentType
				event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
				err := kubernetes.NewForConfigOrDie(config).CoreV1().RESTClient().Post().UseProtobufAsDefault().MaxRetries(0).
					Namespace("ns").Resource("events").Body(event).Do(t.Context()).Error()
				after, _ := apierrors.SuggestsClientDelay(err)
				if apierrors.ReasonForError(err) != test.reason || after != test.after {
					t.Errorf("%s: the client got %v, a retry after %d s; want %s, %d", contentType, err, after, test.reason, test.after)
				}
			}
		})
	}
}

// A client ends its write if it gives up, but for one whose answer is to be lost.
func TestClientGivesUp(t *testing.T) {
	for name, test := range map[string]struct {
		fault  Fault
		writes int64 // that the backend gets
		held   bool  // it does not answer before the client gives up
		status int
	}{
		"hang before the write": {BeforeWrite(Hang), 0, false, 0},
		"hang after the write":  {AfterWrite(Hang), 1, false, 201},
		"lost answer":           {AfterWrite(ResetStream), 1, true, 201},
		"no fault":              {Fault{}, 1, true, 0},
		"slow":                  {Slow(Fixed(time.Hour), nil), 0, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			backend, p, c := setUp(t, always(test.fault))
			backend.held.Store(test.held)
			ctx, giveUp := context.WithCancel(t.Context())
			answer := c.start(ctx, "a")
			await.Until(t, "the write", func() bool { return len(p.Record()) == 1 && backend.writes.Load() == test.writes })
			if p.Record()[0].Ended {
				t.Error("the request has ended though its client waits")
			}
			giveUp()
			if g := receive(t, answer); !errors.Is(g.Err, context.Canceled) {
				t.Errorf("the client got %+v", g)
			}
			if test.status == 0 {
				waitQuiet(t, p) // the backend has not answered
			}
			backend.release()
			if e := onlyEntry(t, p); e.Forwarded != (test.writes > 0) || e.Status != test.status || e.Answer != 0 {
				t.Errorf("recorded is %+v, want the status %d", e, test.status)
			}
			backend.wantWrites(t, test.writes)
		})
	}
}

// The answer does not wait for the write, nor for that of the backend.
func TestLateWriteComesAfterItsAnswer(t *testing.T) {
	const by = 100 * time.Millisecond
	backend, p, c := setUp(t, always(LateWrite(Fixed(by), Status(504))))
	backend.held.Store(true)
	start := time.Now()
	c.create(t.Context(), "a").want(t, 504)
	if took := receive(t, backend.arrived).at.Sub(start); took < by {
		t.Errorf("the write came after %v, want %v at the least", took, by)
	}
	if p.Record()[0].Ended {
		t.Error("the entry has ended before its late write")
	}
	backend.release()
	if e := onlyEntry(t, p); e.Status != 201 || e.Answer != 504 {
		t.Errorf("recorded is %+v", e)
	}
}

func TestDelaysBeforeAndAfterTheWrite(t *testing.T) {
	const before, after = 30 * time.Millisecond, 50 * time.Millisecond
	backend, _, c := setUp(t, always(Slow(Fixed(before), Fixed(after))))
	start := time.Now()
	c.create(t.Context(), "a").want(t, 201)
	end := time.Now()
	at := receive(t, backend.arrived).at
	if at.Sub(start) < before || end.Sub(at) < after {
		t.Errorf("%v before and %v after, want at least %v and %v", at.Sub(start), end.Sub(at), before, after)
	}
}

// Two requests share a connection; one of them is struck while the other is with
// the backend.
func TestResetEndsItsStreamOrTheWholeConnection(t *testing.T) {
	for code, ending := range map[int]Ending{201: ResetStream, 0: ResetConnection} {
		t.Run(ending.String(), func(t *testing.T) {
			backend, _, c := setUp(t, always(BeforeWrite(ending), "struck"))
			used := map[string]int{} // by near ends of connections
			ctx := httptrace.WithClientTrace(t.Context(), &httptrace.ClientTrace{
				GotConn: func(i httptrace.GotConnInfo) { used[i.Conn.LocalAddr().String()]++ },
			})
			c.create(ctx, "first").want(t, 201) // makes the connection
			receive(t, backend.arrived)
			backend.held.Store(true)
			other := c.start(ctx, "other")
			receive(t, backend.arrived)
			c.create(ctx, "struck").want(t, 0)
			if len(used) != 1 {
				t.Fatalf("not on one connection: %v", used)
			}
			if code != 0 {
				backend.release()
			}
			receive(t, other).want(t, code)
		})
	}
}
