package scheduler

import (
	"fmt"
	"testing"
	"time"

	"github.com/eventd/eventd/pkg/occurrence"
)

// answers are those of an apiserver in one namespace, with a clock of their own.
type answers struct {
	*namespaceHealth
	t         *testing.T
	ns, other health
	now       time.Time
}

func newAnswers(t *testing.T, floor, ceiling int) *answers {
	n := newNamespaceHealth(newLimiter(floor, ceiling, time.Second))
	return &answers{n, t, n.load("ns"), n.load("other"), time.Unix(1000, 0)}
}

// refuse answers requests, which were all in flight at once, with a 429.
func (a *answers) refuse(requests int) {
	began := a.now
	a.now = a.now.Add(100 * time.Millisecond)
	for range requests {
		a.overloaded("ns", &a.ns, began, a.now)
	}
}

// takes answers a request that took a time, a while after the last answer.
func (a *answers) takes(each, after time.Duration) {
	a.now = a.now.Add(after)
	a.answered("ns", &a.ns, true, a.now.Add(-each), a.now)
}

// otherIsPrompt answers a request in another namespace in good time.
func (a *answers) otherIsPrompt() {
	a.answered("other", &a.other, true, a.now.Add(-time.Millisecond), a.now)
}

func (a *answers) wantSize(want int) {
	a.t.Helper()
	if got := a.limiter.size(); got != want {
		a.t.Errorf("%d slots, want %d", got, want)
	}
}

func TestLimitFollowsTheApiserver(t *testing.T) {
	a := newAnswers(t, 4, 100)
	a.refuse(5)
	a.wantSize(80)
	a.refuse(1)
	a.wantSize(64)
	for range 100 {
		a.refuse(1)
	}
	a.wantSize(4)
	for range 100_000 {
		a.takes(time.Millisecond, time.Millisecond)
	}
	a.wantSize(100)
}

// What is not used because a refusal decreases the limit is a small part,
// however high the limit is.
func TestNearlyAllIsUsedHoweverMuchTheApiserverTakes(t *testing.T) {
	for _, capacity := range []int{8, 32, 64, 128, 512} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			const (
				each  = 100 // milliseconds, on average
				begin = 10 * each
				end   = begin + 200*each
			)
			a := newAnswers(t, 4, 4*capacity)
			type request struct {
				began   time.Time
				refused bool
			}
			ends := make(map[int][]request) // by millisecond
			var inFlight, slots, sent, refused, answered int
			for ms := range end {
				if ms == begin {
					sent, refused, answered = 0, 0, 0
				}
				now := a.now.Add(time.Duration(ms) * time.Millisecond)
				for _, q := range ends[ms] {
					slots--
					if q.refused {
						a.overloaded("ns", &a.ns, q.began, now)
						continue
					}
					inFlight--
					answered++
					a.answered("ns", &a.ns, true, q.began, now)
				}
				delete(ends, ms)
				for ; slots < a.limiter.size(); slots++ {
					sent++
					after, full := ms+each/2+sent*61%101, inFlight >= capacity
					if full {
						after = ms + 1
						refused++
					} else {
						inFlight++
					}
					ends[after] = append(ends[after], request{now, full})
				}
			}
			best := capacity * (end - begin) / each
			if answered*100 < best*97 || refused*100 > sent {
				t.Errorf("%d of %d were answered, %d of %d were refused", answered, best, refused, sent)
			}
		})
	}
}

// Some answers are slow wherever a machine is shared, and fewer slots would not make
// them quick.
func TestFewSlowAnswersDecreaseNoLimit(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprint("beside another namespace: ", beside), func(t *testing.T) {
			a := newAnswers(t, 4, 100)
			for i := range 20_000 {
				if beside {
					a.otherIsPrompt()
				}
				took := 300 * time.Millisecond
				if i%50 == 0 {
					took = 3 * time.Second
				}
				a.takes(took, time.Millisecond)
				if a.limiter.size() != 100 || a.share(&a.ns, 0) != 75 {
					t.Fatalf("%d slots, %d for the namespace, after answer %d", a.limiter.size(), a.share(&a.ns, 0), i)
				}
			}
		})
	}
}

// Where each further slot makes all wait for longer, there are as many as are
// answered in good time on average.
func TestLimitFollowsTheLatency(t *testing.T) {
	const perSecond = 40
	a := newAnswers(t, 4, 100)
	least, most := 100, 0
	for round := range 1000 {
		size := a.limiter.size()
		for i := range size { // from a half to one and a half
			a.takes(time.Duration(size)*(500+time.Duration(i*61%1001))*time.Millisecond/perSecond, time.Second/perSecond)
		}
		if round >= 100 {
			least, most = min(least, a.limiter.size()), max(most, a.limiter.size())
		}
	}
	if least < perSecond*7/10 || most > perSecond*12/10 {
		t.Errorf("between %d and %d slots, where %d are answered within a second on average", least, most, perSecond)
	}
}

// Slow answers to requests from before a decrease of the limit say nothing of it.
func TestSlowAnswersFromBeforeSayNothing(t *testing.T) {
	a := newAnswers(t, 4, 100)
	began := a.now
	a.refuse(1)
	for range 50 {
		a.now = a.now.Add(time.Second)
		a.answered("other", &a.other, true, began, a.now)
	}
	a.takes(time.Second, time.Second)
	a.wantSize(80)
}

// An answer that takes as long as is slow is slow.
func TestAnswerIsSlowFromItsLimitOn(t *testing.T) {
	for took, slow := range map[time.Duration]bool{time.Second - 1: false, time.Second: true} {
		a := newAnswers(t, 1, 1) // one slot, so that each answer is the average
		a.takes(took, took)
		if got := a.limiter.decreased.Equal(a.now); got != slow {
			t.Errorf("an answer that takes %v is slow: %v, want %v", took, got, slow)
		}
	}
}

// A namespace that is slow while another is not has one slot, if its answers are missing and
// if they are slow on average, until it is quick again.
func TestSlowNamespaceHasOneSlotUntilItIsQuick(t *testing.T) {
	for name, answer := range map[string]bool{"missing answers": false, "slow answers": true} {
		t.Run(name, func(t *testing.T) {
			a := newAnswers(t, 4, 100)
			a.limiter.inUse = 50
			for range 20 {
				began := a.now
				a.now = a.now.Add(3 * time.Second)
				a.otherIsPrompt()
				a.answered("ns", &a.ns, answer, began, a.now)
			}
			a.wantSize(100)
			want := func(h *health, inUse, want int) {
				t.Helper()
				if got := a.share(h, inUse); got != want {
					t.Errorf("%d slots for %+v, which uses %d, want %d", got, h, inUse, want)
				}
			}
			want(&a.ns, 1, 1)
			want(&a.other, 0, 37)
			want(&a.other, 30, 60)
			a.store("ns", a.ns, a.now)
			a.store("other", a.other, a.now)
			a.ns = a.load("ns") // also while it is idle
			want(&a.ns, 1, 1)
			for range 12 {
				a.takes(time.Millisecond, 0)
			}
			want(&a.ns, 0, 37)
			if a.store("ns", a.ns, a.now); a.known.Len() != 0 {
				t.Errorf("%d healthy namespaces are cached", a.known.Len())
			}
		})
	}
}

// Whoever may create Events in all namespaces can invent names of namespaces. Those evict
// nothing that is known of others.
func TestNamespacesThatAreMissingPushOutNone(t *testing.T) {
	a := newAnswers(t, 4, 100)
	a.ns.decrease(1, a.now)
	a.store("ns", a.ns, a.now)
	missing := a.load("missing")
	missing.refusal = Refusal{Reason: occurrence.NamespaceNotFound, Until: a.now.Add(time.Second)}
	for i := range 3 * maxCached {
		a.store(fmt.Sprint("missing-", i), missing, a.now)
	}
	if got := a.load("ns"); !a.isDegraded(&got) {
		t.Error("it is not cached that a namespace is slow")
	}
	if got := a.load(fmt.Sprint("missing-", 3*maxCached-1)); got.refusal != missing.refusal {
		t.Error("it is not cached that a namespace is missing")
	}
	if n := a.known.Len() + a.refused.Len(); n > 2*maxCached {
		t.Errorf("%d namespaces are cached", n)
	}
}
