package intake

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/occurrence"
)

var someName = key{"ns", "a"}

// beginReport begins one whose client has counted so far.
func beginReport(n *names, total int64) *report {
	event := &corev1.Event{Count: int32(total)}
	r := &report{key: someName, event: event, origin: event, occurrence: &occurrence.Occurrence{Event: event, Total: total}, done: make(chan struct{})}
	n.begin(r)
	return r
}

func TestReportThatEndsLeavesTheOthersOfItsName(t *testing.T) {
	for how, end := range map[string]func(*names, *report){
		"settled":  func(n *names, r *report) { n.settled(r, r.newView(nil)) },
		"deferred": func(n *names, r *report) { n.deferred(r) },
		"dropped":  func(n *names, r *report) { n.dropped(r, true) },
	} {
		for ends := range 3 {
			n := newNames(10, 1<<20)
			var all, left []*report
			for i := range 3 {
				all = append(all, beginReport(n, int64(i+1)))
			}
			size := n.openBytes / 3
			end(n, all[ends])
			for i, r := range all {
				if i != ends {
					left = append(left, r)
				}
			}
			if now := n.known(someName); now.last != left[1] || now.view != left[1].begun || n.openBytes != 2*size {
				t.Errorf("report %d is %s: the last one is %v, the bytes of %d are counted", ends, how, now.last, n.openBytes/size)
			}
			for _, r := range left {
				end(n, r)
			}
			if now := n.known(someName); now.last != nil || n.openBytes != 0 || len(n.turns) != 0 {
				t.Errorf("all are %s: the last one is %v, %d bytes, %d names", how, now.last, n.openBytes, len(n.turns))
			}
		}
	}
}

// A request that waits for the oldest report of its name leaves its seat to others,
// and goes on when it has one again.
func TestRequestWaitsForTheOldestReportOfItsNameWithoutASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(10, 1<<20)
		var open []*report
		for i := range maxOpen {
			open = append(open, beginReport(n, int64(i+1)))
		}
		s, err := newSeats("test", 1, 10, nil)
		if err != nil {
			t.Fatal(err)
		}
		own := &seat{seats: s, flow: flow{tenant: "one"}}
		if !own.take(t.Context()) {
			t.Fatal("a free seat is not to be had")
		}
		taken := make(chan error, 1)
		go func() { taken <- n.take(context.WithValue(t.Context(), seatKey{}, own), someName) }()
		synctest.Wait()
		other := &seat{seats: s, flow: flow{tenant: "another"}}
		if len(taken) != 0 || !takesAtOnce(t, other) {
			t.Fatal("it did not wait, or waits with its seat")
		}
		n.dropped(open[0], false)
		close(open[0].done)
		synctest.Wait()
		if len(taken) != 0 {
			t.Error("it goes on, and has no seat")
		}
		other.end()
		if err := <-taken; err != nil {
			t.Error(err)
		}
		if takesAtOnce(t, &seat{seats: s, flow: flow{tenant: "another"}}) {
			t.Error("it goes on without its seat")
		}
		own.end()
		n.release(someName)
	})
}

// takesAtOnce tells whether a seat is free.
func takesAtOnce(t *testing.T, s *seat) bool {
	ctx, cancel := context.WithCancel(t.Context())
	taken := make(chan bool, 1)
	go func() { taken <- s.take(ctx) }()
	synctest.Wait()
	at := len(taken) == 1
	cancel()
	return <-taken && at
}
