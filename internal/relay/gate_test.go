package relay_test

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
)

// The gate is open until what it admitted is answered. Requests of later terms do not matter.
func TestGateOfAFormerTermEndsWithItsOwnRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{pipeline: kept()})
		post := func(name string) (<-chan answer, *occurrence.Occurrence) {
			r.lead(t)
			return background(func() answer { return r.Post(t, classic(name, 1)) }), <-r.Pipeline.Recorded
		}
		a, ofFirst := post("a")
		first := r.ended
		r.stopLeading()
		synctest.Wait()
		b, ofSecond := post("b")

		select {
		case <-first:
			t.Fatal("the gate did not wait")
		default:
		}
		took := stopwatch(t)
		ofFirst.Settled(stored(occurrence.Created, 1))
		(<-a).Want(t, 201, "")
		<-first
		took(0)
		ofSecond.Settled(stored(occurrence.Created, 2))
		(<-b).Want(t, 201, "")
		r.resign()
	})
}

func TestGateWaitsNoLongerThanTheGracePeriod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{pipeline: kept(), gracePeriod: 150 * time.Millisecond})
		r.lead(t)
		hangs := background(func() answer { return r.Post(t, classic("a", 1)) })
		o := <-r.Pipeline.Recorded
		took := stopwatch(t)
		r.resign()
		took(150 * time.Millisecond)
		o.Settled(stored(occurrence.Created, 1))
		(<-hangs).Want(t, 201, "")
	})
}

// It has the view of the name from its earlier term, and another leader has answered the
// client since.
func TestLeaderThatIsElectedAgainTakesWhatAnotherOneHasAnswered(t *testing.T) {
	inTerm := func(r *replica, do func() answer) *corev1.Event {
		r.lead(t)
		defer r.resign()
		a := do()
		if a.Code >= 300 {
			t.Fatalf("answered %d: %s", a.Code, a.Body)
		}
		return a.Event(t)
	}
	put := func(r *replica, event *corev1.Event) answer { return r.Do(t, http.MethodPut, coreEvents+"/a", event) }
	for name, change := range map[string]func(*replica, *corev1.Event) answer{
		"put": put,
		"put without uid": func(r *replica, event *corev1.Event) answer {
			event.UID = ""
			return put(r, event)
		},
		"patch": func(r *replica, event *corev1.Event) answer {
			return r.Patch(t, "a", `{"metadata":{"resourceVersion":%q,"uid":%q},"count":3}`, event.ResourceVersion, event.UID)
		},
	} {
		t.Run(name, func(t *testing.T) {
			here := alone(t, options{})
			there := alone(t, options{pipeline: intaketest.Settled(occurrence.Settlement{Outcome: occurrence.Merged})})
			before := inTerm(here, func() answer { return here.Post(t, classic("a", 1)) })
			told := inTerm(there, func() answer { return put(there, classic("a", 2)) })
			if told.ResourceVersion == before.ResourceVersion || told.UID == before.UID || told.CreationTimestamp == before.CreationTimestamp {
				t.Fatalf("both have answered %+v", told.ObjectMeta)
			}
			told.Count = 3
			inTerm(here, func() answer {
				here.Do(t, http.MethodPut, coreEvents+"/a?dryRun=All", told).Want(t, 200, "")
				here.Post(t, classic("a", 1)).Want(t, 409, metav1.StatusReasonAlreadyExists) // the name is known
				a := change(here, told.DeepCopy())
				a.Want(t, 200, "")
				event := a.Event(t)
				if event.Count != 3 || event.ResourceVersion == before.ResourceVersion {
					t.Errorf("answered %+v", event)
				}
				// From here on it has been answered by this one.
				told.Count, event.Count = 4, 4
				put(here, told).Want(t, 409, metav1.StatusReasonConflict)
				return put(here, event)
			})
			here.Pipeline.WantWeights(t, 1, 2, 1)
		})
	}
}

// By the time that it is answered another replica may have led.
func TestWhatIsAnsweredInALaterTermIsOfTheTermItWasReportedIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{pipeline: kept()})
		r.lead(t)
		posted := background(func() answer { return r.Post(t, classic("a", 1)) })
		o := <-r.Pipeline.Recorded
		r.stopLeading()
		synctest.Wait()
		r.lead(t)
		o.Settled(stored(occurrence.Created, 7))
		(<-posted).Want(t, 201, "")
		r.Pipeline.Becomes(intaketest.Settled(stored(occurrence.Merged, 10)))
		elsewhere := classic("a", 3)
		elsewhere.ResourceVersion, elsewhere.UID = "9", "stored-uid"
		r.Do(t, http.MethodPut, coreEvents+"/a", elsewhere).Want(t, 200, "")
	})
}

func TestGateIsOpenedOnce(t *testing.T) {
	r := alone(t, options{})
	r.lead(t)
	if err := r.gate.Run(t.Context()); err == nil {
		t.Error("opened twice")
	}
	r.Post(t, classic("a", 1)).Want(t, 201, "")
}

func TestGateIsNotReadyBeforeItIsOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate, gone := relay.NewGate(always, time.Hour), errors.New("gone")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(gone) })
		took := stopwatch(t)
		if err := gate.Ready(ctx); !errors.Is(err, gone) {
			t.Errorf("error %v, want %v", err, gone)
		}
		took(time.Minute)
	})
}

// The Lease may have expired before anything has noticed it.
func TestOpenGateAdmitsNothingOnceItsProcessDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var leading atomic.Bool
		r := alone(t, options{leading: leading.Load})
		leading.Store(true)
		r.lead(t)
		r.Post(t, classic("a", 1)).Want(t, 201, "")
		leading.Store(false)
		took := stopwatch(t)
		wantUnavailable(t, r.Post(t, classic("b", 1)))
		took(relay.DefaultLeaderWait)
		r.Pipeline.WantRecorded(t, 1)
	})
}

// The whole process may be stopped after the gate has admitted a request.
func TestTermThatEndsBetweenTheGateAndTheRecord(t *testing.T) {
	var asked atomic.Int32
	r := newReplica(t, options{leading: func() bool { return asked.Add(1) == 1 }, leaderWait: 10 * time.Millisecond})
	r.lead(t)
	wantNotLeading(t, r.Do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...))
	r.Pipeline.WantRecorded(t, 0)
}

// What records nothing needs no leader.
func TestStandbyAnswersEverythingElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{set: func(_ *intake.Options, o *intake.ServerOptions) {
			o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
		}})
		took := stopwatch(t)
		for path, code := range map[string]int{
			"/readyz": 200, "/livez": 200, "/metrics": 200, "/version": 200, "/api": 200, "/apis/events.k8s.io/v1": 200,
			coreEvents: 405, coreEvents + "/a": 405, "/api/v1/namespaces/ns/pods": 404,
		} {
			if a := r.Do(t, http.MethodGet, path, nil); a.Code != code {
				t.Errorf("%s: %d, want %d", path, a.Code, code)
			}
		}
		r.Do(t, http.MethodPost, "/api/v1/events", nil).Want(t, 405, metav1.StatusReasonMethodNotAllowed)
		r.Do(t, http.MethodPost, "/api/v1/namespaces/ns/pods", nil).Want(t, 404, metav1.StatusReasonNotFound)
		took(0)
	})
}

// former returns a replica that leads until lose is called, and then forwards to the next
// leader. As after the loss of its Lease, its gate is still open.
func former(t *testing.T, o options) (replica, next *replica, lose func()) {
	t.Helper()
	var lost atomic.Bool
	o.leading = func() bool { return !lost.Load() }
	replica, next = newReplica(t, o), newReplica(t, options{})
	where := listen(t, next)
	replica.lead(t)
	next.lead(t)
	return replica, next, func() {
		lost.Store(true)
		where.leads(replica)
	}
}

func TestBodyThatArrivesAfterTheTermIsNotRecordedHere(t *testing.T) {
	replica, next, lose := former(t, options{})
	data := must(json.Marshal(classic("a", 1)))
	req, rest := slowly(t)
	answered := background(func() answer { return replica.Send(req) })
	_ = must(rest.Write(data[:20])) // it is being read
	lose()
	_ = must(rest.Write(data[20:]))
	_ = rest.Close()
	(<-answered).Want(t, 201, "")
	replica.Pipeline.WantRecorded(t, 0)
	next.Pipeline.WantRecorded(t, 1)
}

// A gate is closed as fast as requests are answered, and the time that a client takes to
// send a body is not a wait for the leader.
func TestSlowBodyKeepsNeitherTheGateOpenNorIsItWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, options{})
		r.lead(t)
		req, rest := slowly(t)
		took := stopwatch(t)
		answered := background(func() answer { return r.Send(req) })
		synctest.Wait()
		r.resign()
		took(0)
		const slow = 2 * time.Second
		time.Sleep(slow)
		_ = rest.Close()
		wantUnavailable(t, <-answered)
		took(slow + relay.DefaultLeaderWait)
	})
}

// slowly returns a create whose body the test writes.
func slowly(t *testing.T) (*http.Request, *io.PipeWriter) {
	t.Helper()
	body, rest := io.Pipe()
	req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic("a", 1))
	req.Body = body
	return req, rest
}

func TestRequestThatWaitedForItsTurnBeyondTheTermGoesToTheNextLeader(t *testing.T) {
	another := classic("a", 2) // not what is pending, and no raise of it
	another.Reason = "Stopped"
	for _, accept := range []string{"application/json", "application/json;as=Table;v=v1;g=meta.k8s.io"} {
		t.Run(accept, func(t *testing.T) {
			replica, next, lose := former(t, options{pipeline: kept()})
			first := background(func() answer { return replica.Post(t, classic("a", 1)) })
			o := <-replica.Pipeline.Recorded
			second := background(func() answer { return replica.Do(t, http.MethodPost, coreEvents, another, "Accept", accept) })
			await.Until(t, "it waits for its turn", func() bool { return replica.Metric(t, "eventd_intake_in_flight") == 2 })
			lose()
			o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull})
			if a := <-first; a.Code != 429 {
				t.Errorf("what was recorded in time is answered %d", a.Code)
			}
			if a := <-second; a.Code != 201 || a.Header.Get("Retry-After") != "" {
				t.Errorf("answered %d with %v", a.Code, a.Header)
			}
			replica.Pipeline.WantRecorded(t, 1)
			next.Pipeline.WantRecorded(t, 1)
		})
	}
}
