package intake

import (
	"bufio"
	"fmt"
	"io"
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

// What differs in anything is answered as any other request.
func TestWhatBeginsAForwardingSession(t *testing.T) {
	for name, change := range map[string]func(*http.Request){
		"as it is":         func(*http.Request) {},
		"not of a replica": func(req *http.Request) { req.Header.Del(AssertedUserHeader) },
		"HTTP/2":           func(req *http.Request) { req.ProtoMajor, req.ProtoMinor = 2, 0 },
		"GET":              func(req *http.Request) { req.Method = http.MethodGet },
		"another path":     func(req *http.Request) { req.URL.Path += "/" },
		"another protocol": func(req *http.Request) { req.Header.Set("Upgrade", ForwardingProtocol+"2") },
		"no protocol":      func(req *http.Request) { req.Header.Del("Upgrade") },
	} {
		own, passed := new(call), false
		handler := newTestForwardings(nil).begin(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { passed = true }))
		req := httptest.NewRequestWithContext(withCall(t.Context(), own), http.MethodPost, ForwardingPath, nil)
		req.Header.Set(AssertedUserHeader, "a replica")
		req.Header.Set("Upgrade", ForwardingProtocol)
		change(req)
		handler.ServeHTTP(httptest.NewRecorder(), req)
		equal(t, name+": begun", own.session.Load() != nil, name == "as it is")
		equal(t, name+": passed on", passed, name != "as it is")
	}
}

// What a replica sends before it has the answer is in the buffer of the server, and would be missing in the session.
func TestForwardingSessionDoesNotBeginBeforeItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		own, other := net.Pipe()
		defer other.Close()
		in := bufio.NewReader(own)
		go func() { _, _ = other.Write([]byte("early")) }()
		_ = must(in.Peek(1))
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, ForwardingPath, nil)
		go newTestForwardings(http.HandlerFunc(hang)).run(&hijackable{httptest.NewRecorder(), own, in}, req, "token")
		_, err := other.Read(make([]byte, 1))
		equal(t, "error", err, io.EOF)
	})
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
		s := openForwarding(t, newTestForwardings(http.HandlerFunc(hang)))
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
		equal(t, "within a moment", time.Since(began) <= 4*time.Millisecond, true)
	})
}

// A write wakes the standby: what is answered soon shares it. Nobody waits for what hangs.
func TestAnswersOfAMomentAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		s := forwardTo(t, func(http.ResponseWriter, *http.Request) { <-release })
		defer s.leave()
		began, next := time.Now(), uint64(0)
		post := func(n int) {
			for range n {
				s.post(t, next, time.Minute, nil)
				next++
			}
			synctest.Wait()
		}
		answer := func(when string, n, arrived int) {
			t.Helper()
			for range n {
				release <- struct{}{}
			}
			synctest.Wait()
			equal(t, "answers that have arrived "+when, len(s.frames), arrived)
		}
		post(4)
		answer("after the first", 1, 1)
		answer("while another is near", 2, 1)
		answer("after the last", 1, 4)
		equal(t, "after", time.Since(began), 0)
		time.Sleep(time.Second)
		post(3)
		time.Sleep(10 * time.Millisecond)
		answer("while others hang", 1, 5)
		answer("while another hangs", 1, 6)
		equal(t, "after", time.Since(began), time.Second+10*time.Millisecond)
		post(2)
		answer("and others are near", 1, 6)
		time.Sleep(4 * time.Millisecond)
		answer("after a moment", 0, 7)
		answer("in the end", 2, 9)
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
		control := &flowControl{inFlight: shares.New(4 * requests), unread: shares.New(maxUnreadBytes)}
		s := openForwarding(t, newTestForwardings(unread.buffered(control.withForwardedFlow(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write(make([]byte, size))
		})))))
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

// A replica may be configured to read longer ones than the leader takes.
func TestForwardedBodyHasTheLimitOfTheLeader(t *testing.T) {
	req := withBody(httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil), []byte("12345"), time.Second)
	received, err := receive(req, 5)
	equal(t, "error", err, nil)
	equal(t, "is not read again", received == req, true)
	_, err = receive(req, 4)
	equal(t, "code", codeOf(err), http.StatusRequestEntityTooLarge)
}
