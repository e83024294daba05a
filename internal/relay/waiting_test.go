package relay_test

import (
	"context"
	"errors"
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
	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

func TestRequestsWaitUntilTheGateOpens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{})
		took := stopwatch(t)
		requests := map[string]<-chan answer{}
		for name, method := range map[string]string{"a": http.MethodPost, "b": http.MethodPost, "put": http.MethodPut} {
			path := coreEvents
			if method == http.MethodPut {
				path += "/" + name
			}
			requests[name] = background(func() answer { return r.Do(t, method, path, classic(name, 1)) })
		}
		time.Sleep(300 * time.Millisecond)
		r.WantMetric(t, 3, "eventd_relay_parked")
		r.lead(t)
		for name, request := range requests {
			a := <-request
			a.Want(t, 201, "")
			if event := a.Event(t); event.Name != name || event.Message != classic(name, 1).Message {
				t.Errorf("%s is answered %+v", name, event)
			}
		}
		took(300 * time.Millisecond)
		r.WantMetric(t, 0, "eventd_relay_parked")
		r.WantMetric(t, 3, "eventd_relay_parked_duration_seconds")
	})
}

// Authentication runs in that time, and the leader may be gone when it ends.
func TestWithoutALeaderARequestIsRefusedWithinASecond(t *testing.T) {
	for name, test := range map[string]struct {
		after time.Duration
		leads bool // when the request arrives
	}{
		"authenticated at once":                      {0, false},
		"authenticated after a while":                {800 * time.Millisecond, false},
		"never authenticated":                        {time.Hour, false},
		"authenticated when the leader is not there": {700 * time.Millisecond, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := alone(t, options{set: func(_ *intake.Options, o *intake.ServerOptions) {
					everybody := o.Authenticator
					o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
						select {
						case <-time.After(test.after):
							return everybody.AuthenticateRequest(req)
						case <-req.Context().Done():
							return nil, false, req.Context().Err()
						}
					})
				}})
				if test.leads {
					r.lead(t)
				}
				begun := time.Now()
				answered := background(func() answer { return r.Post(t, classic("a", 1)) })
				if test.leads {
					synctest.Wait()
					r.resign()
				}
				r.wantRefused(t, <-answered, "no_leader")
				if waited := time.Since(begun); waited > time.Second || waited < relay.DefaultLeaderWait {
					t.Errorf("answered after %s", waited)
				}
				r.WantMetric(t, 1, "eventd_relay_parked_duration_seconds")
			})
		})
	}
}

func TestWaitingRequestEndsWithItsDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{})
		begun := time.Now()
		r.Do(t, http.MethodPost, coreEvents+"?timeout=500ms", classic("a", 1)).Want(t, 504, metav1.StatusReasonTimeout)
		if waited := time.Since(begun); waited > 500*time.Millisecond {
			t.Errorf("answered after %s", waited)
		}
		r.WantMetric(t, 1, "eventd_relay_refused_total", "timeout")
	})
}

func TestWaitingRequestEndsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{})
		gone, leave := leaving(t, r)
		synctest.Wait()
		took := stopwatch(t)
		leave()
		<-gone
		synctest.Wait()
		took(0)
		r.WantMetric(t, 0, "eventd_relay_parked")
		r.lead(t)
		r.Post(t, classic("b", 1)).Want(t, 201, "")
		r.Pipeline.WantRecorded(t, 1)
	})
}

func TestWaitingRequestsAreInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{set: func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 6 }})
		r.lead(t)
		r.Post(t, classic("known", 1)).Want(t, 201, "")
		r.resign()
		first := background(func() answer { return r.Post(t, classic("a", 1)) }) // of two that one caller may have in flight
		second := background(func() answer { return r.Post(t, classic("b", 1)) })
		synctest.Wait()
		if a := r.Post(t, classic("c", 1)); a.Code != http.StatusTooManyRequests {
			t.Errorf("answered %d", a.Code)
		}
		r.lead(t)
		(<-first).Want(t, 201, "")
		(<-second).Want(t, 201, "")
	})
}

func TestWaitingRequestGoesToTheNextLeader(t *testing.T) {
	former, next := newReplica(t, options{}), newReplica(t, options{})
	formerAt, nextAt := listen(t, former), listen(t, next)
	next.lead(t)
	toNext := func(_ *testing.T, other *replica) *replica {
		nextAt.leads(other)
		return next
	}
	for name, test := range map[string]struct {
		address, certificate string // that are announced when the request arrives
		elect                func(t *testing.T, other *replica) *replica
	}{
		"nobody leads":                  {"", "", toNext},
		"the former leader has stopped": {formerAt.address(), formerAt.fingerprint(), toNext},
		"the former leader is gone":     {"127.0.0.1:1", formerAt.fingerprint(), toNext},
		"there is no certificate":       {nextAt.address(), "", toNext},
		"the leader does not accept yet": {formerAt.address(), formerAt.fingerprint(), func(t *testing.T, other *replica) *replica {
			await.Until(t, "it was refused", func() bool { return other.Metric(t, "eventd_relay_retries_total", "not_leading") > 0 })
			former.lead(t)
			return former
		}},
		"the replica itself is next": {formerAt.address(), formerAt.fingerprint(), func(t *testing.T, other *replica) *replica {
			other.relay.SetLeader(election.Announcement{})
			other.lead(t)
			return other
		}},
	} {
		t.Run(name, func(t *testing.T) {
			other := newReplica(t, options{leaderWait: time.Minute})
			other.relay.SetLeader(election.Announcement{Address: test.address, CertificateSHA256: test.certificate})
			large := classic(strings.ReplaceAll(name, " ", "-"), 1)
			large.Message = strings.Repeat("x", 500_000) // a refusal arrives before the whole body is sent
			request := background(func() answer { return other.Post(t, large) })
			await.Until(t, "it is waiting", func() bool { return other.Metric(t, "eventd_relay_parked") == 1 })
			leader := test.elect(t, other)
			(<-request).Want(t, 201, "")
			if got := leader.Pipeline.Taken(); len(got) != 1 || got[0].Client != large.Name || got[0].Event.Message != large.Message {
				t.Errorf("recorded %d times", len(got))
			}
		})
	}
}

// client-go's rest client sends a request eleven times.
func TestClientsWaitForLongerTheLongerNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{})
		retryAfter := func() int {
			a := r.Post(t, classic("a", 1))
			a.Want(t, 503, metav1.StatusReasonServiceUnavailable)
			seconds, err := strconv.Atoi(a.Header.Get("Retry-After"))
			if err != nil {
				t.Error(err)
			}
			return seconds
		}
		begun := time.Now()
		var waits []int
		for range 11 {
			seconds := retryAfter()
			waits = append(waits, seconds)
			time.Sleep(time.Duration(seconds) * time.Second)
		}
		if !slices.IsSorted(waits) || waits[0] != 1 || waits[10] != 10 || time.Since(begun) < time.Minute {
			t.Errorf("asked to wait for %v s, %s in all", waits, time.Since(begun))
		}
		r.lead(t)
		r.Post(t, classic("a", 1)).Want(t, 201, "")
		r.resign()
		if got := retryAfter(); got != 1 {
			t.Errorf("asked to wait for %d s by one that has just led", got)
		}
	})
}

func TestLeaderIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{})
		wantNobody := func() {
			soon, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			r.relay.SetLeader(election.Announcement{Address: "127.0.0.1:1"}) // nothing can be forwarded to it
			if err := r.relay.AwaitLeader(soon); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("nobody leads: %v", err)
			}
		}
		wantNobody()
		time.AfterFunc(time.Minute, func() {
			r.relay.SetLeader(election.Announcement{Address: "127.0.0.1:1", CertificateSHA256: "of another replica"})
		})
		for range 2 { // whether it is known already or not
			if err := r.relay.AwaitLeader(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wantNobody() // any more
	})
}
