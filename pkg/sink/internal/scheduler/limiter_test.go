package scheduler

import (
	"fmt"
	"testing"
	"time"
)

// answers feeds a limiter with the answers in one namespace, by a clock of its own.
type answers struct {
	*namespaceHealth
	ns  health
	now time.Time
}

func newAnswers(floor, ceiling int) *answers {
	r := newNamespaceHealth(newLimiter(floor, ceiling, time.Second))
	return &answers{namespaceHealth: r, ns: r.load("ns"), now: time.Unix(1000, 0)}
}

// refuse answers so many requests, which were all in flight at once, that it is too
// much.
func (w *answers) refuse(requests int) {
	began := w.now
	w.now = w.now.Add(100 * time.Millisecond)
	for range requests {
		w.overloaded("ns", &w.ns, began, w.now)
	}
}

func (w *answers) prompt(requests int) {
	for range requests {
		w.now = w.now.Add(time.Millisecond)
		w.answered("ns", &w.ns, true, w.now.Add(-time.Millisecond), w.now)
	}
}

func TestLimitFollowsTheApiserver(t *testing.T) {
	w := newAnswers(4, 100)
	if w.refuse(5); w.limiter.size() != 80 {
		t.Errorf("%d slots after a refusal of 100", w.limiter.size())
	}
	if w.refuse(1); w.limiter.size() != 64 {
		t.Errorf("%d slots after another one", w.limiter.size())
	}
	for range 100 {
		w.refuse(1)
	}
	if w.limiter.size() != 4 {
		t.Errorf("%d slots at the least", w.limiter.size())
	}
	if w.prompt(100_000); w.limiter.size() != 100 {
		t.Errorf("%d slots at the most", w.limiter.size())
	}
}

// Near where there was too much, there is more by little.
func TestLimitStaysWhereItIsRight(t *testing.T) {
	const takes = 40
	w := newAnswers(4, 100)
	refusals, least, most := 0, 100, 0
	for range 20 { // to where it is right
		if w.limiter.size() > takes {
			w.refuse(1)
		} else {
			w.prompt(w.limiter.size())
		}
	}
	const answers = 20_000
	for answered := 0; answered < answers; answered += w.limiter.size() {
		if w.limiter.size() > takes {
			w.refuse(1)
			refusals++
		} else {
			w.prompt(w.limiter.size())
		}
		least, most = min(least, w.limiter.size()), max(most, w.limiter.size())
	}
	if least < takes*8/10 || most > takes+1 || refusals*1000 > 5*answers {
		t.Errorf("between %d and %d slots where %d are right, %d refusals for %d answers", least, most, takes, refusals, answers)
	}
}

// What is not used because a refusal decreases the limit is a small part,
// however high the limit is.
func TestNearlyAllIsUsedHoweverMuchTheApiserverTakes(t *testing.T) {
	for _, takes := range []int{8, 32, 64, 128, 512} {
		t.Run(fmt.Sprint(takes), func(t *testing.T) {
			const (
				each  = 100 // milliseconds, on average
				begin = 10 * each
				end   = begin + 200*each
			)
			r := newNamespaceHealth(newLimiter(4, 4*takes, time.Second))
			s := r.load("ns")
			type request struct {
				began   time.Time
				refused bool
			}
			ends := make(map[int][]request)
			var inFlight, slots, asked, refused, answered int
			start := time.Now()
			for ms := range end {
				if ms == begin {
					asked, refused, answered = 0, 0, 0
				}
				now := start.Add(time.Duration(ms) * time.Millisecond)
				for _, q := range ends[ms] {
					slots--
					if q.refused {
						r.overloaded("ns", &s, q.began, now)
						continue
					}
					inFlight--
					answered++
					r.answered("ns", &s, true, q.began, now)
				}
				delete(ends, ms)
				for slots < r.limiter.size() {
					slots++
					asked++
					if inFlight >= takes {
						refused++
						ends[ms+1] = append(ends[ms+1], request{now, true})
						continue
					}
					inFlight++
					after := ms + each/2 + asked*61%101
					ends[after] = append(ends[after], request{now, false})
				}
			}
			best := takes * (end - begin) / each
			if answered*100 < best*97 || refused*100 > asked {
				t.Errorf("%d of %d were answered, %d of %d were refused", answered, best, refused, asked)
			}
		})
	}
}

// takes answers a request that took so long, a while after the last answer.
func (w *answers) takes(each, after time.Duration) {
	w.now = w.now.Add(after)
	w.answered("ns", &w.ns, true, w.now.Add(-each), w.now)
}

// Some answers are slow wherever a machine is shared, and more slots would not
// make others of them slow.
func TestFewSlowAnswersDecreaseNoLimit(t *testing.T) {
	for _, beside := range []bool{false, true} {
		t.Run(fmt.Sprintf("beside another namespace %v", beside), func(t *testing.T) {
			w := newAnswers(4, 100)
			other := w.load("other")
			for i := range 20_000 {
				if beside {
					w.answered("other", &other, true, w.now.Add(-100*time.Millisecond), w.now)
				}
				if i%50 == 0 {
					w.takes(3*time.Second, time.Millisecond)
				} else {
					w.takes(300*time.Millisecond, time.Millisecond)
				}
				if w.limiter.size() != 100 || w.share(&w.ns, 0) != 75 {
					t.Fatalf("%d slots, %d for the namespace, after answer %d", w.limiter.size(), w.share(&w.ns, 0), i)
				}
			}
		})
	}
}

// Where each further place makes all wait for longer, there are as many as are
// answered in good time on average.
func TestLimitFollowsTheLatency(t *testing.T) {
	const perSecond = 40
	w := newAnswers(4, 100)
	least, most := 100, 0
	for round := range 1000 {
		size := w.limiter.size()
		for i := range size { // from a half to one and a half
			w.takes(time.Duration(size)*(500+time.Duration(i*61%1001))*time.Millisecond/perSecond, time.Second/perSecond)
		}
		if round >= 100 {
			least, most = min(least, w.limiter.size()), max(most, w.limiter.size())
		}
	}
	if least < perSecond*7/10 || most > perSecond*12/10 {
		t.Errorf("between %d and %d slots, where %d are answered within a second on average", least, most, perSecond)
	}
}

// Slow answers to requests from before the limit was decreased say nothing of how it
// is now.
func TestSlowAnswersFromBeforeSayNothing(t *testing.T) {
	w := newAnswers(4, 100)
	other := w.load("other")
	began := w.now
	w.refuse(1)
	for range 50 {
		w.now = w.now.Add(time.Second)
		w.answered("other", &other, true, began, w.now)
	}
	w.takes(time.Second, time.Second)
	if w.limiter.size() != 80 {
		t.Errorf("%d slots, want 80", w.limiter.size())
	}
}

// An answer that takes as long as is slow is slow.
func TestAnswerIsSlowFromItsLimitOn(t *testing.T) {
	for took, slow := range map[time.Duration]bool{time.Second - 1: false, time.Second: true} {
		w := newAnswers(1, 1) // one place, so that each answer is the average
		w.takes(took, took)
		if got := w.limiter.decreased.Equal(w.now); got != slow {
			t.Errorf("an answer that takes %v is slow: %v, want %v", took, got, slow)
		}
	}
}
