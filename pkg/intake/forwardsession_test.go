package intake

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/internal/shares"
)

// hijackable is a response whose connection can be taken over, without a server.
type hijackable struct {
	*httptest.ResponseRecorder
	conn net.Conn
}

func (h *hijackable) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	return h.conn, bufio.NewReadWriter(bufio.NewReader(h.conn), bufio.NewWriter(h.conn)), nil
}

// standby is the other end of a forwarding session, in a bubble.
type standby struct {
	conn   net.Conn
	out    *frame.Writer
	frames chan received // without pings; closed when the session is
	ended  chan struct{} // closed when the leader's end has returned
}

// received is a frame.
type received struct {
	kind    frame.Kind
	id      uint64
	payload string
}

// forwardTo opens a session in which a handler answers.
func forwardTo(t *testing.T, handler http.HandlerFunc) *standby {
	t.Helper()
	accepting := &replicaTokens{review: func() (bool, error) { return true, nil }}
	s := openForwarding(t, &forwardings{handler: handler, forwarder: accepting, open: make(chan struct{}, 1)})
	go s.read()
	return s
}

// openForwarding opens a session, of which nothing is read.
func openForwarding(t *testing.T, f *forwardings) *standby {
	t.Helper()
	own, other := net.Pipe()
	s := &standby{conn: other, out: frame.NewWriter(other), frames: make(chan received, 2*frame.MaxPending), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		f.run(&hijackable{httptest.NewRecorder(), own}, httptest.NewRequestWithContext(t.Context(), http.MethodPost, ForwardingPath, nil), "token")
	}()
	response, err := http.ReadResponse(bufio.NewReader(other), nil)
	if err != nil || response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatal(response, err)
	}
	go func() { _ = s.out.Run() }()
	return s
}

func (s *standby) read() {
	defer close(s.frames)
	frames := frame.NewReader(s.conn)
	for {
		kind, id, payload, err := frames.Next()
		if err != nil {
			return
		}
		if kind != frame.Ping {
			s.frames <- received{kind, id, string(payload)}
		}
	}
}

// leave closes the session, and returns when the leader's end has ended.
func (s *standby) leave() {
	s.out.Close()
	_ = s.conn.Close()
	<-s.ended
}

// post sends a request with headers and a time until its deadline.
func (s *standby) post(t *testing.T, id uint64, timeout time.Duration, header http.Header) {
	t.Helper()
	s.forward(t, id, &frame.Forwarded{
		Timeout: timeout, Method: http.MethodPost, URI: "/", User: &user.DefaultInfo{Name: "caller"}, Header: header,
	})
}

func (s *standby) forward(t *testing.T, id uint64, request *frame.Forwarded) {
	t.Helper()
	f, ok := frame.AppendRequest(nil, id, request, nil)
	if !ok {
		t.Fatal("too long")
	}
	if _, ok := s.out.TryAdd(f); !ok {
		t.Error("not added")
	}
	s.out.Flush()
}

// answer is the whole answer to the only request, and the number of its frames.
func (s *standby) answer(t *testing.T) (code int, body string, frames int) {
	t.Helper()
	data := ""
	for f := range s.frames {
		frames++
		if f.kind != frame.Answer || len(f.payload) > answerChunk+1 {
			t.Fatalf("frame %d of %d bytes", f.kind, len(f.payload))
		}
		data += f.payload[1:]
		if f.payload[0] == 1 {
			break
		}
	}
	code, _, all, err := frame.DecodeAnswer([]byte(data))
	if err != nil {
		t.Fatal(err)
	}
	return code, string(all), frames
}

// hang is a handler that waits for the end of its request.
func hang(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() }

// wantEnded checks whether the leader has ended the session by now.
func (s *standby) wantEnded(t *testing.T, want bool) {
	t.Helper()
	synctest.Wait()
	select {
	case <-s.ended:
		equal(t, "ended", true, want)
	default:
		equal(t, "ended", false, want)
	}
}

// The requests in it end too.
func TestForwardingSessionEndsWhenItsTokenIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var rejected atomic.Bool
		tokens := &replicaTokens{review: func() (bool, error) { return !rejected.Load(), nil }}
		s := openForwarding(t, &forwardings{handler: http.HandlerFunc(hang), forwarder: tokens, open: make(chan struct{}, 1)})
		go s.read()
		defer s.leave()
		s.post(t, 1, time.Hour, nil)
		time.Sleep(sessionReviewPeriod + time.Second)
		s.wantEnded(t, false)
		rejected.Store(true)
		time.Sleep(sessionReviewPeriod)
		s.wantEnded(t, true)
	})
}

// As of a process that is stopped.
func TestForwardingSessionEndsWhenTheStandbyIsSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := forwardTo(t, hang)
		defer s.leave()
		s.post(t, 1, time.Hour, nil)
		time.Sleep(2 * frame.Silence) // it sends pings
		s.wantEnded(t, false)
		s.out.Close()
		time.Sleep(frame.Silence)
		s.wantEnded(t, true)
	})
}

// It sends pings, so nothing else would end it.
func TestForwardingSessionEndsWhenTheStandbyReadsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		accepting := &replicaTokens{review: func() (bool, error) { return true, nil }}
		s := openForwarding(t, &forwardings{handler: http.HandlerFunc(hang), forwarder: accepting, open: make(chan struct{}, 1)})
		defer s.leave()
		time.Sleep(frame.Period + frame.Silence)
		s.wantEnded(t, true)
	})
}

// What runs after a session has ended would write to nobody, and count as in flight.
func TestForwardingSessionEndsAfterItsRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late, cancelled := make(chan struct{}), make(chan struct{})
		s := forwardTo(t, func(_ http.ResponseWriter, req *http.Request) {
			<-req.Context().Done()
			close(cancelled)
			<-late
		})
		s.post(t, 1, time.Hour, nil)
		synctest.Wait()
		_ = s.conn.Close()
		<-cancelled
		s.wantEnded(t, false)
		close(late)
		s.wantEnded(t, true)
		s.leave()
	})
}

func TestForwardedRequestHasTheTimeOfItsClient(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 0, 5 * time.Second: 5 * time.Second, time.Hour: requestTimeout} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			s := forwardTo(t, hang)
			defer s.leave()
			s.post(t, 1, given, nil)
			code, _, _ := s.answer(t)
			equal(t, "code", code, http.StatusOK)
			equal(t, "after", time.Since(began), want)
		})
	}
}

func TestForwardedRequestEndsWhenItsClientHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		s := forwardTo(t, hang)
		defer s.leave()
		s.post(t, 1, time.Hour, nil)
		s.out.AddControl(frame.Cancel, 7) // not known: it may be answered by now
		s.out.AddControl(frame.Cancel, 1)
		_, _, _ = s.answer(t)
		equal(t, "after", time.Since(began), 0)
	})
}

// A session has a goroutine and a request's memory for each.
func TestForwardingSessionHasALimitOfRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := forwardTo(t, hang)
		defer s.leave()
		for id := range uint64(frame.MaxPending) {
			s.post(t, id, time.Minute, nil)
		}
		s.wantEnded(t, false)
		s.post(t, frame.MaxPending, time.Minute, nil)
		s.wantEnded(t, true)
	})
}

// The standby must not take a part of an answer for the whole.
func TestForwardedRequestThatIsAbortedHasNoAnswer(t *testing.T) {
	for name, panics := range map[string]any{"aborted": http.ErrAbortHandler, "panicked": "a bug"} {
		bubble(t, name, func(t *testing.T) {
			s := forwardTo(t, func(w http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Fails") != "" {
					w.WriteHeader(http.StatusCreated)
					panic(panics)
				}
			})
			defer s.leave()
			s.post(t, 1, time.Minute, http.Header{"Fails": {"1"}})
			equal(t, "frame", <-s.frames, received{frame.Abort, 1, ""})
			s.post(t, 1, time.Minute, nil) // the session remains, and the id is free
			code, _, _ := s.answer(t)
			equal(t, "code", code, http.StatusOK)
		})
	}
}

func TestAnswerInASessionIsInFramesThatAreNotLarge(t *testing.T) {
	small, large := strings.Repeat("a", 100), strings.Repeat("ab", 3*answerChunk)
	for name, test := range map[string]struct {
		header http.Header
		parts  []string
		frames int
	}{
		"without a body":            {nil, nil, 1},
		"a usual one":               {http.Header{"Content-Length": {"100"}}, []string{small}, 1},
		"a part, and then the rest": {nil, []string{small, large, small}, 9},
		"a large one":               {http.Header{"Content-Length": {fmt.Sprint(len(large))}}, []string{large}, 7},
	} {
		bubble(t, name, func(t *testing.T) {
			s := forwardTo(t, func(w http.ResponseWriter, _ *http.Request) {
				for name, values := range test.header {
					w.Header()[name] = values
				}
				w.WriteHeader(http.StatusEarlyHints) // is not the answer
				w.WriteHeader(http.StatusCreated)
				for _, part := range test.parts {
					written := []byte(part)
					_, _ = w.Write(written)
					clear(written) // the handler may use it again
				}
			})
			defer s.leave()
			s.post(t, 1, time.Minute, nil)
			code, body, frames := s.answer(t)
			equal(t, "code", code, http.StatusCreated)
			equal(t, "same body", body == strings.Join(test.parts, ""), true)
			equal(t, "frames", frames, test.frames)
		})
	}
}

// The standby may use the id again, and the client is not to wait for what follows.
func TestAnswerInASessionEndsWithItsLastByte(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := forwardTo(t, func(w http.ResponseWriter, req *http.Request) {
			w.Header().Set("Content-Length", "2")
			_, _ = w.Write([]byte("{}"))
			time.Sleep(time.Second)
			if req.Context().Err() == nil {
				t.Error("its context has not ended")
			}
		})
		began := time.Now()
		for range 3 {
			s.post(t, 1, time.Minute, nil)
			_, body, _ := s.answer(t)
			equal(t, "body", body, "{}")
		}
		equal(t, "after", time.Since(began), 0)
		s.leave()
	})
}

// A standby that does not read has the answers to others wait too, but not aborted.
func TestCallerHasItsShareOfUnreadAnswersInASession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, requests = 20 << 10, 30 // of which some wait to be written, and some for that
		unread := &unreadResponses{
			shares: shares.New(10 * (size + 2*unreadOverhead)), limit: size,
			aborted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "aborted"}, []string{"reason"}),
		}
		control := &flowControl{inFlight: shares.New(4 * requests)}
		accepting := &replicaTokens{review: func() (bool, error) { return true, nil }}
		s := openForwarding(t, &forwardings{forwarder: accepting, open: make(chan struct{}, 1),
			handler: unread.buffered(control.withForwardedFlow(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				_, _ = w.Write(make([]byte, size))
			})))})
		defer s.leave()
		for id := range uint64(requests + 1) {
			caller := "a"
			if id == requests {
				caller = "b"
			}
			s.forward(t, id, &frame.Forwarded{Timeout: time.Minute, Method: http.MethodPost, URI: "/", User: &user.DefaultInfo{Name: caller}})
			synctest.Wait()
		}
		go s.read()
		synctest.Wait()
		_ = s.conn.Close()
		aborted, answered := 0, false
		for f := range s.frames {
			switch {
			case f.id == requests:
				answered = answered || f.kind == frame.Answer
			case f.kind == frame.Abort:
				aborted++
			}
		}
		equal(t, "some are aborted, of one caller", aborted > 0 && aborted < requests, true)
		equal(t, "the other caller is answered", answered, true)
	})
}

// Whoever forwards asserts a user in the frame, and nothing in headers.
func TestHeadersBetweenReplicasAreNotThoseOfAFrame(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		got := make(chan http.Header, 1)
		s := forwardTo(t, func(_ http.ResponseWriter, req *http.Request) { got <- req.Header })
		defer s.leave()
		s.post(t, 1, time.Minute, http.Header{"A": {"1"}, AssertedUserHeader: {"admin"}, "Eventd-Not-Leading": {"true"}})
		if diff := cmp.Diff(http.Header{"A": {"1"}, AssertedUserHeader: {"caller"}}, <-got); diff != "" {
			t.Errorf("-want +got:\n%s", diff)
		}
	})
}
