package ha

import (
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

var stallFigures = figures.NewTable("A leader that stands still past its lease of 3 s, and goes on; times are p50 / p99 / max in ms",
	append([]string{"times", "SIGSTOP to new leader's first write", "SIGCONT to its first answer, as a standby", "pending when it stopped",
		"of the load, written after SIGCONT", "accepted by it too late"}, endColumns...)...)

// The leader is stopped for longer than its lease, and continues when another one
// leads: it steps down and accepts nothing, and its pending occurrences count once.
func TestLeaderThatStandsStillAddsWhatItOwesOnce(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), append([]string{settling}, shortLease...)...)
	l, r, d := f.startLoad(), f.watchRoles(), f.newDeferred(longrun.Either(1000, 200))
	var first, down durations
	var pending []float64
	var stands []stand
	done := repeat(t, repetitions(20, 2), func(int) {
		d.postAll(d.all)
		b := l.observe()
		n := b.leader.pending()
		if n == 0 {
			t.Errorf("%s has nothing pending when it stops", b.leader.name)
		}
		pending = append(pending, n)
		stopped := time.Now()
		b.leader.signal(syscall.SIGSTOP)
		taken := l.waitTaken(b, stopped)
		first = append(first, taken.at.Sub(stopped))
		continued := time.Now()
		b.leader.signal(syscall.SIGCONT)
		if b.leader.role() == leading {
			if _, again := l.lease.again(b.term); !again {
				t.Errorf("%s leads when it goes on", b.leader.name)
			}
		}
		down = append(down, time.Since(continued))
		stands = append(stands, stand{b, stopped, continued})
		await.Until(t, "the former leader to settle what was pending", func() bool { return b.leader.pending() == 0 })
		l.waitWrite()
	})
	cells := l.finish(t, true, r, d)
	late := l.wantNoneTooLate(t, stands, toStop)
	_, after := l.tooLate(stands, toStop)
	stallFigures.Add(append([]any{done, milliseconds(first), milliseconds(down), figures.Spread(pending...), after, late}, cells...)...)
}

// toStop is how long after SIGSTOP a process has certainly stopped. From then on it
// must accept nothing, since its lease has expired when it continues.
const toStop = 100 * time.Millisecond

// pending is how many occurrences a replica has accepted and not settled.
func (m *member) pending() float64 {
	m.t.Helper()
	return m.metrics().Sum("eventd_occurrences_pending")
}

// stand is a time that a leader stood still, or was cut off.
type stand struct {
	before
	began, ended time.Time
}

// wantNoneTooLate checks that there are none, and returns their number.
func (l *load) wantNoneTooLate(t *testing.T, stands []stand, atTheLatest time.Duration) int {
	t.Helper()
	late, _ := l.tooLate(stands, atTheLatest)
	if len(late) > 0 {
		t.Errorf("%d occurrences were accepted by a leader whose lease had expired, such as %+v", len(late), late[0])
	}
	return len(late)
}

// tooLate returns the occurrences that a former leader accepted although they were
// posted at the latest so long after it was stopped or cut off. It also counts the
// occurrences that it wrote afterwards.
func (l *load) tooLate(stands []stand, atTheLatest time.Duration) (late []post, written int) {
	posts, _ := l.ledger()
	for _, s := range stands {
		over := s.began.Add(atTheLatest)
		again, led := l.lease.again(s.term)
		for _, c := range l.journal.since(s.began) {
			if c.writer != s.writer || led && c.at.After(again) {
				continue
			}
			for _, key := range c.keys {
				made, ok := posts[key]
				if !ok {
					continue // a recorder's
				}
				if c.at.After(s.ended) {
					written++
				}
				if made.began.After(over) {
					late = append(late, made)
				}
			}
		}
	}
	return late, written
}
