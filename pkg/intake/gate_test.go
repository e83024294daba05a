package intake_test

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestGateWaitsUntilWhatItLetInIsAnswered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, kept(), nil)
		ended := r.lead(t)
		answered := background(func() answer { return r.post(t, classic("a", 1)) })
		o := <-r.pipeline.recorded

		r.stopLeading(errors.New("planned stop"))
		synctest.Wait()
		select {
		case <-ended:
			t.Fatal("the gate did not wait")
		default:
		}
		late := background(func() answer { return r.post(t, classic("b", 1)) })
		time.Sleep(intake.DefaultPark)
		(<-late).want(t, 503, metav1.StatusReasonServiceUnavailable)

		o.Settled(stored(occurrence.Created, 1))
		(<-answered).want(t, 201, "")
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// A former term is over when its own requests are, whatever comes in later ones.
func TestGateOfAFormerTermEndsWithItsOwnRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, kept(), nil)
		first := r.lead(t)
		a := background(func() answer { return r.post(t, classic("a", 1)) })
		ofFirst := <-r.pipeline.recorded
		r.stopLeading(nil)
		synctest.Wait()
		second := r.lead(t)
		b := background(func() answer { return r.post(t, classic("b", 1)) })
		ofSecond := <-r.pipeline.recorded

		begun := time.Now()
		ofFirst.Settled(stored(occurrence.Created, 1))
		(<-a).want(t, 201, "")
		<-first
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("the first term's gate ended after %s", waited)
		}
		r.stopLeading(nil)
		ofSecond.Settled(stored(occurrence.Created, 2))
		(<-b).want(t, 201, "")
		<-second
	})
}

func TestGateWaitsNoLongerThanItHasPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, kept(), replicaOptions{reviewer: reviewer(t, "http://127.0.0.1:1"), token: tokenFile(t, "unused"), patience: 150 * time.Millisecond})
		ended := r.lead(t)
		hangs := background(func() answer { return r.post(t, classic("a", 1)) })
		o := <-r.pipeline.recorded
		begun := time.Now()
		r.stopLeading(nil)
		<-ended
		if waited := time.Since(begun); waited != 150*time.Millisecond {
			t.Errorf("it ended after %s", waited)
		}
		o.Settled(stored(occurrence.Created, 1))
		(<-hangs).want(t, 201, "")
	})
}

func TestGateIsOpenedAtEveryElection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		for _, name := range []string{"a", "b", "c"} {
			ended := r.lead(t)
			r.post(t, classic(name, 1)).want(t, 201, "")
			r.stopLeading(nil)
			if err := <-ended; err != nil {
				t.Error(err)
			}
			r.post(t, classic(name+"-late", 1)).want(t, 503, metav1.StatusReasonServiceUnavailable)
		}
	})
}

// It has the view of the name from its earlier term, and what the client was told
// since is from another leader.
func TestLeaderThatIsElectedAgainTakesWhatAnotherOneHasAnswered(t *testing.T) {
	inTerm := func(r *replica, do func() answer) answer {
		ended := r.lead(t)
		a := do()
		r.stopLeading(nil)
		if err := <-ended; err != nil {
			t.Error(err)
		}
		return a
	}
	const changes = `{"metadata":{"resourceVersion":%q,"uid":%q},"count":3}`
	for name, change := range map[string]func(*replica, *corev1.Event) answer{
		"put": func(r *replica, event *corev1.Event) answer {
			return r.do(t, http.MethodPut, coreEvents+"/a", event)
		},
		"put without uid": func(r *replica, event *corev1.Event) answer {
			event.UID = ""
			return r.do(t, http.MethodPut, coreEvents+"/a", event)
		},
		"patch": func(r *replica, event *corev1.Event) answer {
			return r.patch(t, "a", changes, event.ResourceVersion, event.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			here, there := alone(t, written(), nil), alone(t, settled(occurrence.Settlement{Outcome: occurrence.Merged}), nil)
			before := inTerm(here, func() answer { return here.post(t, classic("a", 1)) }).event(t)
			told := inTerm(there, func() answer { return there.do(t, http.MethodPut, coreEvents+"/a", classic("a", 2)) }).event(t)
			if told.ResourceVersion == before.ResourceVersion || told.UID == before.UID || told.CreationTimestamp == before.CreationTimestamp {
				t.Fatalf("both have answered %+v", told.ObjectMeta)
			}
			told.Count = 3
			inTerm(here, func() answer {
				here.do(t, http.MethodPut, coreEvents+"/a?dryRun=All", told).want(t, 200, "")
				here.post(t, classic("a", 1)).want(t, 409, metav1.StatusReasonAlreadyExists) // the name is known
				a := change(here, told.DeepCopy())
				a.want(t, 200, "")
				event := a.event(t)
				if event.Count != 3 || event.ResourceVersion == before.ResourceVersion {
					t.Errorf("answered %+v", event)
				}
				// From here on it has been answered by this one.
				told.Count = 4
				here.do(t, http.MethodPut, coreEvents+"/a", told).want(t, 409, metav1.StatusReasonConflict)
				event.Count = 4
				a = here.do(t, http.MethodPut, coreEvents+"/a", event)
				a.want(t, 200, "")
				return a
			})
			if diff := cmp.Diff([]int64{1, 2, 1}, here.pipeline.weights()); diff != "" {
				t.Errorf("weights (-want +got):\n%s", diff)
			}
		})
	}
}

// By the time that it is answered another one may have led.
func TestWhatIsAnsweredInALaterTermIsOfTheTermItWasReportedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kept()
		r := alone(t, p, nil)
		first := r.lead(t)
		posted := background(func() answer { return r.post(t, classic("a", 1)) })
		o := <-p.recorded
		r.stopLeading(nil)
		synctest.Wait()
		second := r.lead(t)
		o.Settled(stored(occurrence.Created, 7))
		(<-posted).want(t, 201, "")
		<-first
		p.settle = settled(stored(occurrence.Merged, 10)).settle
		elsewhere := classic("a", 3)
		elsewhere.ResourceVersion, elsewhere.UID = "9", "stored-uid"
		r.do(t, http.MethodPut, coreEvents+"/a", elsewhere).want(t, 200, "")
		r.stopLeading(nil)
		<-second
	})
}

func TestGateIsOpenedOnce(t *testing.T) {
	r := alone(t, written(), nil)
	ended := r.lead(t)
	if err := r.gate.Run(t.Context()); err == nil {
		t.Error("opened twice")
	}
	r.post(t, classic("a", 1)).want(t, 201, "")
	r.stopLeading(nil)
	<-ended
}

func TestGateIsReadyWhenItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := intake.NewGate(always, time.Hour)
		gone := errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		ready := make(chan error, 1)
		go func() { ready <- gate.Ready(ctx) }()
		synctest.Wait()
		select {
		case err := <-ready:
			t.Fatalf("ready before it is open: %v", err)
		default:
		}
		cancel(gone)
		if err := <-ready; !errors.Is(err, gone) {
			t.Errorf("error %v, want %v", err, gone)
		}
	})
}

// The lease may have run out without anybody having noticed.
func TestOpenGateLetsNothingInOnceItsProcessDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leading atomic.Bool
		r := alone(t, written(), leading.Load)
		leading.Store(true)
		r.lead(t)
		r.post(t, classic("a", 1)).want(t, 201, "")
		leading.Store(false)
		begun := time.Now()
		a := r.post(t, classic("b", 1))
		a.want(t, 503, metav1.StatusReasonServiceUnavailable)
		if waited := time.Since(begun); waited != intake.DefaultPark {
			t.Errorf("answered after %s", waited)
		}
		if got := len(r.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
		r.stopLeading(nil)
	})
}

func TestRequestsAreParkedUntilTheGateOpens(t *testing.T) {
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
			t.Errorf("%v are parked", got)
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
			t.Errorf("%v are parked", got)
		}
		if got := r.metric(t, "eventd_relay_parked_duration_seconds"); got != 3 {
			t.Errorf("%v have been parked", got)
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
				if waited := time.Since(begun); waited > time.Second || waited < intake.DefaultPark {
					t.Errorf("answered after %s", waited)
				}
				if got := r.metric(t, "eventd_relay_refused_total", "no_leader"); got != 1 {
					t.Errorf("%v refused", got)
				}
				if got := r.metric(t, "eventd_relay_parked_duration_seconds"); got != 1 {
					t.Errorf("%v have been parked", got)
				}
			})
		})
	}
}

// The leader may be gone by the time that the caller is known.
func TestTimeToFindOutWhoCallsCountsAsParked(t *testing.T) {
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
		if waited := time.Since(begun); waited != intake.DefaultPark {
			t.Errorf("answered after %s", waited)
		}
	})
}

func TestParkedRequestEndsWithItsDeadline(t *testing.T) {
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

func TestParkedRequestEndsWithItsClient(t *testing.T) {
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
			t.Errorf("it was parked for another %s", waited)
		}
		if got := r.metric(t, "eventd_relay_parked"); got != 0 {
			t.Errorf("%v are parked", got)
		}
		r.lead(t)
		r.post(t, classic("b", 1)).want(t, 201, "")
		if got := len(r.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
		r.stopLeading(nil)
	})
}

func TestParkedRequestsAreInFlight(t *testing.T) {
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

// What records nothing needs no leader.
func TestStandbyAnswersEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil, func(_ *intake.Options, o *intake.ServerOptions) {
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		})
		begun := time.Now()
		for path, code := range map[string]int{
			"/readyz": 200, "/livez": 200, "/metrics": 200, "/version": 200, "/api": 200, "/apis/events.k8s.io/v1": 200,
			coreEvents: 405, coreEvents + "/a": 405, "/api/v1/namespaces/ns/pods": 404,
		} {
			if a := r.do(t, http.MethodGet, path, nil); a.code != code {
				t.Errorf("%s: %d, want %d", path, a.code, code)
			}
		}
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("it took %s", waited)
		}
	})
}

func TestBodyOfARequestForTheLeaderIsLimited(t *testing.T) {
	small := func(o *intake.Options, _ *intake.ServerOptions) { o.MaxBodyBytes = 2000 }
	large := classic("a", 1)
	large.Message = string(make([]byte, 3000))
	want := serve(t, written(), small).post(t, large)
	want.want(t, 413, metav1.StatusReasonRequestEntityTooLarge)
	r := alone(t, written(), nil, small)
	r.relay.SetLeader("127.0.0.1:1", "of a leader that is gone")
	got := r.post(t, large)
	got.want(t, 413, metav1.StatusReasonRequestEntityTooLarge)
	if got.status(t).Message != want.status(t).Message {
		t.Errorf("%q, but the leader says %q", got.status(t).Message, want.status(t).Message)
	}
}

// alone returns a replica that knows no other one, and no apiserver either.
func alone(t *testing.T, p *fakePipeline, leading func() bool, settings ...setting) *replica {
	t.Helper()
	return newReplica(t, p, replicaOptions{leading: leading, reviewer: reviewer(t, "http://127.0.0.1:1"), token: tokenFile(t, "unused")}, settings...)
}
