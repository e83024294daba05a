package intake

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

var someName = key{"ns", "a"}

// beginReport adds a pending report with a total.
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
			size := n.pending.InUse() / 3
			end(n, all[ends])
			for i, r := range all {
				if i != ends {
					left = append(left, r)
				}
			}
			if now := n.known(someName); now.last != left[1] || now.view != left[1].begun || n.pending.InUse() != 2*size {
				t.Errorf("report %d is %s: the last one is %v, the bytes of %d are counted", ends, how, now.last, n.pending.InUse()/size)
			}
			for _, r := range left {
				end(n, r)
			}
			if now := n.known(someName); now.last != nil || n.pending.InUse() != 0 || len(n.locks) != 0 {
				t.Errorf("all are %s: the last one is %v, %d bytes, %d names", how, now.last, n.pending.InUse(), len(n.locks))
			}
		}
	}
}

// A request that waits for the oldest report of its name releases its seat, and acquires
// one before it continues.
func TestRequestWaitsForTheOldestReportOfItsNameWithoutASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(10, 1<<20)
		var open []*report
		for i := range maxPending {
			open = append(open, beginReport(n, int64(i+1)))
		}
		s := testSeats(t, 1, 10)
		own := &seat{seats: s, flow: flow{Tenant: "one"}}
		if !own.acquire(t.Context()) {
			t.Fatal("no seat is free")
		}
		taken := make(chan error, 1)
		go func() { taken <- n.lock(withCall(t.Context(), &call{seat: own}), someName) }()
		synctest.Wait()
		other := &seat{seats: s, flow: flow{Tenant: "another"}}
		if len(taken) != 0 || !takesAtOnce(t, other) {
			t.Fatal("it did not wait, or waits with a seat")
		}
		n.dropped(open[0], false)
		close(open[0].done)
		synctest.Wait()
		if len(taken) != 0 {
			t.Error("it continues without a seat")
		}
		other.end()
		if err := <-taken; err != nil {
			t.Error(err)
		}
		if takesAtOnce(t, &seat{seats: s, flow: flow{Tenant: "another"}}) {
			t.Error("it continues without its seat")
		}
		own.end()
		n.unlock(someName)
		for _, r := range open[1:] {
			n.dropped(r, false)
		}
		if len(n.locks) != 0 {
			t.Errorf("%d names are kept", len(n.locks))
		}
	})
}

// A request that times out while it waits for a name leaves no state.
func TestRequestThatWaitsInVainLeavesItsNameAsItWas(t *testing.T) {
	post := func(total int64) *report {
		event := &corev1.Event{Count: int32(total), Reason: strconv.FormatInt(total, 10)} // of another series each
		return &report{key: someName, event: event, origin: event, occurrence: &occurrence.Occurrence{Event: event, Total: total}, post: true, done: make(chan struct{})}
	}
	for name, test := range map[string]struct {
		open  int  // pending reports
		taken bool // the name is locked
		wait  func(ctx context.Context, n *names) error
	}{
		"for the lock":       {0, true, func(ctx context.Context, n *names) error { return n.lock(ctx, someName) }},
		"for the oldest one": {maxPending, false, func(ctx context.Context, n *names) error { return n.lock(ctx, someName) }},
		"to post": {1, false, func(ctx context.Context, n *names) error {
			_, err := n.lockForPost(ctx, someName, post(100))
			return err
		}},
		"to post, for the lock": {1, true, func(ctx context.Context, n *names) error {
			_, err := n.lockForPost(ctx, someName, post(100))
			return err
		}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n := newNames(10, 1<<20)
				var open []*report
				for i := range test.open {
					r := post(int64(i + 1))
					n.begin(r)
					open = append(open, r)
				}
				if test.taken {
					if err := n.lock(t.Context(), someName); err != nil {
						t.Fatal(err)
					}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				begun := time.Now()
				if err := test.wait(ctx, n); err != context.DeadlineExceeded || time.Since(begun) != time.Second {
					t.Errorf("%v after %s", err, time.Since(begun))
				}
				for _, r := range open {
					n.dropped(r, false)
				}
				if !test.taken {
					if err := n.lock(t.Context(), someName); err != nil {
						t.Error(err)
					}
				}
				n.unlock(someName)
				if len(n.locks) != 0 || n.pending.InUse() != 0 {
					t.Errorf("%d names are kept, and %d bytes", len(n.locks), n.pending.InUse())
				}
			})
		})
	}
}

// A POST that finds the same one pending when it has the lock joins it and unlocks.
func TestPostThatJoinsAnotherUnlocksItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := newNames(10, 1<<20)
		if err := n.lock(t.Context(), someName); err != nil {
			t.Fatal(err)
		}
		event := &corev1.Event{Count: 1}
		same := func() *report {
			return &report{key: someName, event: event, origin: event, occurrence: &occurrence.Occurrence{Event: event, Total: 1}, post: true, done: make(chan struct{})}
		}
		joined := make(chan *report, 1)
		go func() {
			r, err := n.lockForPost(t.Context(), someName, same())
			if err != nil {
				t.Error(err)
			}
			joined <- r
		}()
		synctest.Wait()
		first := same()
		n.begin(first)
		n.unlock(someName)
		if got := <-joined; got != first {
			t.Errorf("joined %v", got)
		}
		n.dropped(first, false)
		if len(n.locks) != 0 {
			t.Error("the name stays locked")
		}
	})
}
