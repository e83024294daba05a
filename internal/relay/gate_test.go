package relay_test

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

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func TestGateWaitsUntilAdmittedRequestsAreAnswered(t *testing.T) {
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
		time.Sleep(relay.DefaultLeaderWait)
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

func TestGateWaitsNoLongerThanTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newReplica(t, kept(), replicaOptions{reviewer: reviewer(t, "http://127.0.0.1:1"), token: tokenFile(t, "unused"), gracePeriod: 150 * time.Millisecond})
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
		gate := relay.NewGate(always, time.Hour)
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
func TestOpenGateAdmitsNothingOnceItsProcessDoesNotLead(t *testing.T) {
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
		if waited := time.Since(begun); waited != relay.DefaultLeaderWait {
			t.Errorf("answered after %s", waited)
		}
		if got := len(r.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
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
