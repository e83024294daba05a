package relay_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
)

func TestRequestsWaitUntilTheGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		begun := time.Now()
		requests := map[string]<-chan answer{}
		for _, name := range []string{"a", "b"} {
			requests[name] = background(func() answer { return r.post(t, classic(name, 1)) })
		}
		requests["put"] = background(func() answer { return r.do(t, http.MethodPut, coreEvents+"/put", classic("put", 1)) })
		time.Sleep(300 * time.Millisecond)
		if got := r.metric(t, "eventd_relay_parked"); got != 3 {
			t.Errorf("%v are waiting", got)
		}
		r.lead(t)
		for name, request := range requests {
			a := <-request
			a.want(t, 201, "")
			if event := a.event(t); event.Name != name || event.Message != classic(name, 1).Message {
				t.Errorf("%s is answered %+v", name, event)
			}
		}
		if waited := time.Since(begun); waited != 300*time.Millisecond {
			t.Errorf("answered after %s", waited)
		}
		if got := r.metric(t, "eventd_relay_parked"); got != 0 {
			t.Errorf("%v are waiting", got)
		}
		if got := r.metric(t, "eventd_relay_parked_duration_seconds"); got != 3 {
			t.Errorf("%v have waited", got)
		}
		r.stopLeading(nil)
	})
}

// However long it takes to find out who the caller is.
func TestWithoutALeaderARequestIsRefusedWithinASecond(t *testing.T) {
	for name, after := range map[string]time.Duration{"at once": 0, "a while": 800 * time.Millisecond, "never": time.Hour} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, written(), nil, func(_ *intake.Options, o *intake.ServerOptions) {
					everybody := o.Authenticator
					o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
						select {
						case <-time.After(after):
							return everybody.AuthenticateRequest(req)
						case <-req.Context().Done():
							return nil, false, req.Context().Err()
						}
					})
				})
				begun := time.Now()
				a := r.post(t, classic("a", 1))
				a.want(t, 503, metav1.StatusReasonServiceUnavailable)
				if got := a.header.Get("Retry-After"); got != "1" {
					t.Errorf("Retry-After %q", got)
				}
				if waited := time.Since(begun); waited > time.Second || waited < relay.DefaultLeaderWait {
					t.Errorf("answered after %s", waited)
				}
				if got := r.metric(t, "eventd_relay_refused_total", "no_leader"); got != 1 {
					t.Errorf("%v refused", got)
				}
				if got := r.metric(t, "eventd_relay_parked_duration_seconds"); got != 1 {
					t.Errorf("%v have waited", got)
				}
			})
		})
	}
}

// The leader may be gone by the time that the caller is known.
func TestAuthenticationCountsAsWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil, func(_ *intake.Options, o *intake.ServerOptions) {
			everybody := o.Authenticator
			o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
				time.Sleep(700 * time.Millisecond)
				return everybody.AuthenticateRequest(req)
			})
		})
		ended := r.lead(t)
		begun := time.Now()
		answered := background(func() answer { return r.post(t, classic("a", 1)) })
		synctest.Wait()
		r.stopLeading(nil)
		<-ended
		(<-answered).want(t, 503, metav1.StatusReasonServiceUnavailable)
		if waited := time.Since(begun); waited != relay.DefaultLeaderWait {
			t.Errorf("answered after %s", waited)
		}
	})
}

func TestWaitingRequestEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		begun := time.Now()
		a := r.do(t, http.MethodPost, coreEvents+"?timeout=500ms", classic("a", 1))
		a.want(t, 504, metav1.StatusReasonTimeout)
		if waited := time.Since(begun); waited > 500*time.Millisecond {
			t.Errorf("answered after %s", waited)
		}
		if got := r.metric(t, "eventd_relay_refused_total", "timeout"); got != 1 {
			t.Errorf("%v refused", got)
		}
	})
}

func TestWaitingRequestEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		ctx, cancel := context.WithCancel(t.Context())
		gone := background(func() answer { return r.doUntil(ctx, t, http.MethodPost, coreEvents, classic("a", 1)) })
		synctest.Wait()
		begun := time.Now()
		cancel()
		<-gone
		synctest.Wait()
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("it waited for another %s", waited)
		}
		if got := r.metric(t, "eventd_relay_parked"); got != 0 {
			t.Errorf("%v are waiting", got)
		}
		r.lead(t)
		r.post(t, classic("b", 1)).want(t, 201, "")
		if got := len(r.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
		r.stopLeading(nil)
	})
}

func TestWaitingRequestsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil, func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 6 })
		ended := r.lead(t)
		r.post(t, classic("known", 1)).want(t, 201, "")
		r.stopLeading(nil)
		<-ended
		first := background(func() answer { return r.post(t, classic("a", 1)) }) // of two that one caller may have in flight
		second := background(func() answer { return r.post(t, classic("b", 1)) })
		synctest.Wait()
		if a := r.post(t, classic("c", 1)); a.code != http.StatusTooManyRequests {
			t.Errorf("answered %d", a.code)
		}
		r.lead(t)
		(<-first).want(t, 201, "")
		(<-second).want(t, 201, "")
		r.stopLeading(nil)
	})
}

func TestRequestWaitsForALeaderThatDoesNotAcceptYet(t *testing.T) {
	leader := standby(t)
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	listenTLS(t, leader).leads(other)
	large := classic("a", 1)
	large.Message = strings.Repeat("x", 500_000) // it is refused while the body is still on its way
	request := background(func() answer { return other.post(t, large) })
	until(t, "it was refused", func() bool { return other.metric(t, "eventd_relay_retries_total", "not_leading") > 0 })
	leader.lead(t)
	(<-request).want(t, 201, "")
	if got := leader.pipeline.occurrences(); len(got) != 1 || got[0].Event.Message != large.Message {
		t.Errorf("recorded %d times", len(got))
	}
	leader.stopLeading(nil)
}

func TestWaitingRequestGoesToTheNextLeader(t *testing.T) {
	former, next := standby(t), standby(t)
	formerAt, nextAt := listenTLS(t, former), listenTLS(t, next)
	other := standbyWith(t, written(), replicaOptions{leaderWait: time.Minute})
	next.lead(t)
	defer func() { next.stopLeading(nil) }()
	waiting := func(name string, prepare func()) <-chan answer {
		prepare()
		name = strings.ReplaceAll(name, " ", "-")
		request := background(func() answer { return other.post(t, classic(name, 1)) })
		until(t, "it is waiting", func() bool { return other.metric(t, "eventd_relay_parked") == 1 })
		return request
	}
	for name, prepare := range map[string]func(){
		"nobody leads":               func() { other.relay.SetLeader("", "") },
		"the former one has stopped": func() { formerAt.leads(other) },
		"the former one is gone":     func() { other.relay.SetLeader("127.0.0.1:1", formerAt.fingerprint()) },
		"announced without a certificate": func() {
			other.relay.SetLeader(nextAt.address(), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(next.pipeline.occurrences())
			request := waiting(name, prepare)
			nextAt.leads(other)
			(<-request).want(t, 201, "")
			if got := len(next.pipeline.occurrences()); got != before+1 {
				t.Errorf("recorded %d times", got-before)
			}
		})
	}
	t.Run("this one leads", func(t *testing.T) {
		request := waiting("here", func() { formerAt.leads(other) })
		other.relay.SetLeader("", "")
		other.lead(t)
		(<-request).want(t, 201, "")
		if got := len(other.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
		other.stopLeading(nil)
	})
}

// As client-go's rest client, which does not ask for an eleventh time.
func TestClientsWaitForLongerTheLongerNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		ask := func() (seconds int) {
			a := r.post(t, classic("a", 1))
			a.want(t, 503, metav1.StatusReasonServiceUnavailable)
			seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
			if err != nil {
				t.Error(err)
			}
			return seconds
		}
		begun := time.Now()
		var waits []int
		for range 11 {
			waits = append(waits, ask())
			time.Sleep(time.Duration(waits[len(waits)-1]) * time.Second)
		}
		if !slices.IsSorted(waits) || waits[0] != 1 || waits[10] != 10 || time.Since(begun) < time.Minute {
			t.Errorf("asked to wait for %v s, %s in all", waits, time.Since(begun))
		}
		ended := r.lead(t)
		r.post(t, classic("a", 1)).want(t, 201, "")
		r.stopLeading(nil)
		<-ended
		if got := ask(); got != 1 {
			t.Errorf("asked to wait for %d s by one that has just led", got)
		}
	})
}

func TestLeaderIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.relay.SetLeader("127.0.0.1:1", "") // nothing can be forwarded to it
		if err := r.relay.AwaitLeader(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody leads: %v", err)
		}
		time.AfterFunc(time.Minute, func() { r.relay.SetLeader("127.0.0.1:1", "of another replica") })
		for range 2 { // whether it is known already or not
			if err := r.relay.AwaitLeader(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestTimeThatAClientTakesToSendTheBodyIsNotWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		ended := r.lead(t)
		body, rest := io.Pipe()
		req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic("a", 1))
		req.Body = body
		begun := time.Now()
		answered := background(func() answer { return r.send(req) })
		synctest.Wait()
		r.stopLeading(nil)
		<-ended
		const slow = 2 * time.Second
		time.Sleep(slow)
		_ = rest.Close()
		(<-answered).want(t, 503, metav1.StatusReasonServiceUnavailable)
		if waited := time.Since(begun); waited != slow+relay.DefaultLeaderWait {
			t.Errorf("answered after %s", waited)
		}
	})
}
