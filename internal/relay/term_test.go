package relay_test

import (
	"encoding/json"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// former returns a replica that leads until the function is called, and then
// passes on to the next leader, as after the loss of its Lease: its gate need not
// have been closed yet.
func former(t *testing.T, p *fakePipeline) (replica, next *replica, lose func()) {
	t.Helper()
	var lost atomic.Bool
	replica = standbyWith(t, p, replicaOptions{leading: func() bool { return !lost.Load() }})
	next = standby(t)
	where := listenTLS(t, next)
	ended, nextEnded := replica.lead(t), next.lead(t)
	t.Cleanup(func() {
		replica.stopLeading(nil)
		next.stopLeading(nil)
		<-ended
		<-nextEnded
	})
	return replica, next, func() {
		lost.Store(true)
		where.leads(replica)
	}
}

func TestBodyThatArrivesAfterTheTermIsNotRecordedHere(t *testing.T) {
	replica, next, lose := former(t, written())
	data, err := json.Marshal(classic("a", 1))
	if err != nil {
		t.Fatal(err)
	}
	body, rest := io.Pipe()
	req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic("a", 1))
	req.Body = body
	answered := background(func() answer { return replica.send(req) })
	if _, err := rest.Write(data[:20]); err != nil { // it is being read
		t.Fatal(err)
	}
	lose()
	if _, err := rest.Write(data[20:]); err != nil {
		t.Fatal(err)
	}
	_ = rest.Close()
	(<-answered).want(t, 201, "")
	if here, there := len(replica.pipeline.occurrences()), len(next.pipeline.occurrences()); here != 0 || there != 1 {
		t.Errorf("the former leader has recorded %d times, the next one %d times", here, there)
	}
}

// A gate is closed as fast as requests are answered, not as clients send them.
func TestSlowBodyDoesNotKeepTheGateFromClosing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		ended := r.lead(t)
		body, rest := io.Pipe()
		req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic("a", 1))
		req.Body = body
		answered := background(func() answer { return r.send(req) })
		synctest.Wait()
		begun := time.Now()
		r.stopLeading(nil)
		<-ended
		if waited := time.Since(begun); waited != 0 {
			t.Errorf("it was closed after %s", waited)
		}
		_ = rest.Close()
		<-answered
	})
}

func TestRequestThatWaitedForItsTurnBeyondTheTermGoesToTheNextLeader(t *testing.T) {
	another := classic("a", 2) // not what is pending, and no raise of it
	another.Reason = "Stopped"
	for name, do := range map[string]func(*replica) answer{
		"post": func(r *replica) answer { return r.post(t, another) },
		"table": func(r *replica) answer {
			return r.do(t, http.MethodPost, coreEvents, another, "Accept", "application/json;as=Table;v=v1;g=meta.k8s.io")
		},
	} {
		t.Run(name, func(t *testing.T) {
			replica, next, lose := former(t, kept())
			first := background(func() answer { return replica.post(t, classic("a", 1)) })
			o := <-replica.pipeline.recorded
			second := background(func() answer { return do(replica) })
			until(t, "it waits for its turn", func() bool { return replica.metric(t, "eventd_intake_in_flight") == 2 })
			lose()
			o.Settled(occurrence.Settlement{Outcome: occurrence.Dropped, Reason: occurrence.QueueFull})
			if a := <-first; a.code != 429 {
				t.Errorf("what was recorded in time is answered %d", a.code)
			}
			a := <-second
			if a.code != 201 || a.header.Get("Retry-After") != "" {
				t.Errorf("answered %d with %v", a.code, a.header)
			}
			if here, there := len(replica.pipeline.occurrences()), len(next.pipeline.occurrences()); here != 1 || there != 1 {
				t.Errorf("the former leader has recorded %d times, the next one %d times", here, there)
			}
		})
	}
}

// The whole process may be stopped after the gate has let a request in.
func TestTermThatEndsBetweenTheGateAndTheRecord(t *testing.T) {
	var asked atomic.Int32
	r := standbyWith(t, written(), replicaOptions{leading: func() bool { return asked.Add(1) == 1 }, leaderWait: 10 * time.Millisecond})
	ended := r.lead(t)
	a := r.do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...)
	if a.code != 503 || a.header.Get("Eventd-Not-Leading") != "true" || a.header.Get("Retry-After") != "1" {
		t.Errorf("another replica is answered %d with %v", a.code, a.header)
	}
	if got := r.pipeline.occurrences(); len(got) > 0 {
		t.Errorf("recorded %d times", len(got))
	}
	r.stopLeading(nil)
	<-ended
}
