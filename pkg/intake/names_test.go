package intake

import (
	"context"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

var someName = key{"ns", "a"}

// posted returns the report of a POST. Those of different totals are of different series.
func posted(total int64) *report {
	event := &corev1.Event{Count: int32(total), Reason: strconv.FormatInt(total, 10)}
	return &report{
		key: someName, event: event, origin: event, post: true,
		occurrence: &occurrence.Occurrence{Event: event, Total: total},
		done:       make(chan struct{}),
	}
}

// begun returns names with pending reports of one name.
func begun(reports int) (n *names, pending []*report) {
	n = newNames(10, 1<<20)
	for i := range reports {
		pending = append(pending, posted(int64(i+1)))
		n.begin(pending[i])
	}
	return n, pending
}

// isEmpty checks that nothing is kept once the pending reports have ended.
func (n *names) isEmpty(t *testing.T, pending ...*report) {
	t.Helper()
	for _, r := range pending {
		n.dropped(r, false)
	}
	equal(t, "names that are kept", len(n.locks), 0)
	equal(t, "pending bytes", n.pending.InUse(), 0)
}

func TestReportThatEndsLeavesTheOthersOfItsName(t *testing.T) {
	for how, end := range map[string]func(*names, *report){
		"settled":  func(n *names, r *report) { n.settled(r, r.newView(nil)) },
		"accepted": func(n *names, r *report) { n.accepted(r) },
		"dropped":  func(n *names, r *report) { n.dropped(r, true) },
	} {
		for ends, last := range []int{2, 2, 1} {
			n, all := begun(3)
			size := n.pending.InUse() / 3
			end(n, all[ends])
			now := n.known(someName)
			wantLast, wantView := all[last], all[last].pendingView()
			if ends == 2 && how != "dropped" { // the newest one has ended first
				v, _ := n.views.Peek(someName)
				wantLast, wantView = nil, v
			}
			if now.last != wantLast || now.view != wantView || n.pending.InUse() != 2*size {
				t.Errorf("report %d is %s: the last one is %v, %d bytes", ends, how, now.last, n.pending.InUse())
			}
			for i, r := range all {
				if i != ends {
					end(n, r)
				}
			}
			equal(t, "the last one that is pending", n.known(someName).last, nil)
			n.isEmpty(t)
		}
	}
}

// A request that waits for the oldest report of its name releases its seat, and acquires
// one before it continues.
func TestRequestWaitsForTheOldestReportOfItsNameWithoutASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, open := begun(maxPending)
		s := testSeats(1, 10)
		own := &seat{seats: s, flow: flow{Tenant: "one"}}
		equal(t, "a seat is free", own.acquire(t.Context()), true)
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
		equal(t, "it continues without a seat", len(taken), 0)
		other.end()
		equal(t, "error", <-taken, nil)
		equal(t, "its seat is free", takesAtOnce(t, &seat{seats: s, flow: flow{Tenant: "another"}}), false)
		own.end()
		n.unlock(someName)
		n.isEmpty(t, open[1:]...)
	})
}

// A request that times out while it waits for a name leaves no state.
func TestRequestThatWaitsInVainLeavesItsNameAsItWas(t *testing.T) {
	for name, test := range map[string]struct {
		open        int // pending reports
		taken, post bool
	}{
		"for the lock":          {0, true, false},
		"for the oldest one":    {maxPending, false, false},
		"to post":               {1, false, true},
		"to post, for the lock": {1, true, true},
	} {
		bubble(t, name, func(t *testing.T) {
			n, open := begun(test.open)
			if test.taken {
				equal(t, "error of the lock", n.lock(t.Context(), someName), nil)
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			begun := time.Now()
			var err error
			if test.post {
				_, err = n.lockForPost(ctx, someName, posted(100))
			} else {
				err = n.lock(ctx, someName)
			}
			equal[error](t, "error", err, context.DeadlineExceeded)
			equal(t, "waited", time.Since(begun), time.Second)
			if test.taken {
				n.unlock(someName)
			}
			n.isEmpty(t, open...)
			equal(t, "error of a later lock", n.lock(t.Context(), someName), nil)
			n.unlock(someName)
		})
	}
}

// A POST joins the same POST of its caller, and not an update with the same result: then the Event exists.
func TestPostJoinsOnlyAPost(t *testing.T) {
	for name, test := range map[string]struct {
		change func(pending *report)
		joins  bool
	}{
		"the same POST":              {func(*report) {}, true},
		"an update":                  {func(r *report) { r.post = false }, false},
		"a POST of another one":      {func(r *report) { r.occurrence.User = "jane" }, false},
		"a POST with another result": {func(r *report) { r.occurrence.Event = posted(2).event }, false},
		"a POST with other rights":   {func(r *report) { r.occurrence.CreateOnly = true }, false},
	} {
		n, all := begun(1)
		test.change(all[0])
		equal(t, name, n.repeated(someName, posted(1)) == all[0], test.joins)
		n.isEmpty(t, all...)
	}
}

// An Event of a batch waits for nothing of its name, and leaves it as it was if it would have to.
func TestPostInABatchWaitsForNothing(t *testing.T) {
	for name, test := range map[string]struct {
		open                int // pending reports
		taken, raises, full bool
		want                error
	}{
		"of a new name":              {},
		"of a locked name":           {taken: true, want: errNamePending},
		"beside another one":         {open: 1, want: errNamePending},
		"a raise":                    {open: maxPending - 1, raises: true},
		"a raise, with too many":     {open: maxPending, raises: true, want: errNamePending},
		"a raise, without memory":    {open: 1, raises: true, full: true, want: errNamePending},
		"of a new name, without any": {full: true},
	} {
		n, open := begun(test.open)
		post := posted(100)
		if test.raises {
			post.event.Reason = open[test.open-1].event.Reason
		}
		of, held := flow{Tenant: occurrence.TenantOf(""), Namespace: someName.namespace}, int64(0)
		if test.full {
			held = n.pending.AcquireUpTo(of, 1<<30)
		}
		if test.taken {
			equal(t, name+": error of the lock", n.lock(t.Context(), someName), nil)
		}
		joined, err := n.tryLockForPost(someName, post)
		if joined != nil || err != test.want {
			t.Errorf("%s: joined %v, error %v, want %v", name, joined, err, test.want)
		}
		if test.taken || err == nil {
			n.unlock(someName)
		}
		n.pending.Release(of, held)
		n.isEmpty(t, open...)
	}
}

// A POST that finds the same one pending when it has the lock joins it and unlocks.
func TestPostThatJoinsAnotherUnlocksItsName(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n, _ := begun(0)
		equal(t, "error of the lock", n.lock(t.Context(), someName), nil)
		joined := make(chan *report, 1)
		go func() {
			r, err := n.lockForPost(t.Context(), someName, posted(1))
			equal(t, "error", err, nil)
			joined <- r
		}()
		synctest.Wait()
		first := posted(1)
		n.begin(first)
		n.unlock(someName)
		if got := <-joined; got != first {
			t.Errorf("joined %v", got)
		}
		n.isEmpty(t, first)
	})
}

// A report under a generated name that another one has is taken for a retry, and not counted.
func TestGeneratedNamesAreDifferent(t *testing.T) {
	const names = 100_000
	base, generated := strings.Repeat("pod-", 15), make(map[string]bool, names)
	for range names {
		name := strategy{}.GenerateName(base)
		if len(name) != maxGeneratedName || !strings.HasPrefix(name, base[:50]) {
			t.Fatalf("%s has %d characters", name, len(name))
		}
		generated[name] = true
	}
	if len(generated) != names {
		t.Errorf("%d of %d names are different", len(generated), names)
	}
}

// Whether somebody has asked for the view of a report before it is filtered or not.
func TestViewHasWhatWasFiltered(t *testing.T) {
	for name, ask := range map[string]func(*names){
		"nobody has asked": func(*names) {}, "somebody has asked": func(n *names) { n.known(someName) },
	} {
		n, all := begun(1)
		ask(n)
		all[0].fresh = 3
		equal(t, name, n.filtered(all[0]).filtered, 3)
	}
}

// After a storm of names, locks are kept for a few of the next ones.
func TestFewUnusedLocksAreKept(t *testing.T) {
	n := newNames(10, 1<<20)
	const count = 2 * maxUnused
	named := func(i int) key { return key{"ns", strconv.Itoa(i)} }
	for i := range count {
		if err := n.lock(t.Context(), named(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range count {
		n.unlock(named(i))
	}
	equal(t, "unused", len(n.unused), maxUnused)
	if err := n.lock(t.Context(), named(0)); err != nil {
		t.Fatal(err)
	}
	equal(t, "unused, with one used again", len(n.unused), maxUnused-1)
}
