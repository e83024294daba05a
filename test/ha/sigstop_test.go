package ha

import (
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/testenv"
)

var stallFigures = figures.NewTable("A leader that stands still past its lease of 3 s, and goes on; times are p50 / p99 / max in ms",
	"times", "SIGSTOP to new leader's first write", "SIGCONT to its first answer, as a standby", "owed when it stopped", "of the load, written after SIGCONT", "accepted by it too late",
	"occurrences", "posted again", "lost", "counted twice", "beyond 64 names", "504 at the client's own deadline",
	"classic recorder: recorded -lost +twice", "new-style recorder")

// The leader stands still for longer than its lease, and goes on when another one
// leads: it steps down and accepts nothing, and what it owed is added once.
func TestLeaderThatStandsStillAddsWhatItOwesOnce(t *testing.T) {
	f := startFleet(t, testenv.Shared(t), append([]string{settling}, shortLease...)...)
	l, o := f.startLoad(), f.newOwed(either(1000, 200))
	var first, down durations
	var owes []float64
	var stands []stand
	done := repeat(t, repetitions(20, 2), func(int) {
		o.sayAll(o.all)
		b := l.observe()
		owed := b.leader.owes()
		if owed == 0 {
			t.Errorf("%s owes nothing when it stops", b.leader.name)
		}
		owes = append(owes, owed)
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
		eventually(t, "the former leader has settled what it owed", func() bool { return b.leader.owes() == 0 })
		l.waitWrite()
	})
	l.end()
	f.stop()
	l.wantNoFinalErrors(t, true)
	d := l.wantStored(t, f.cluster)
	d.add(o.wantStored(t, f.cluster))
	fates := l.fates()
	fates.wantKept(t)
	if n := len(fates.forgotten); n > 0 {
		t.Errorf("%d deferred occurrences are not stored, and nobody was killed", n)
	}
	late, after := l.tooLate(stands, toStop)
	if len(late) > 0 {
		t.Errorf("%d occurrences were accepted by a leader whose lease had run out, such as %+v", len(late), late[0])
	}
	classic, newStyle := l.recorded(t)
	l.wantSettled(t)
	stallFigures.Add(done, milliseconds(first), milliseconds(down), figures.Spread(owes...), after, len(late),
		fates.names, fates.retried, d.lost, d.twice, len(fates.outside), l.service.answered().timedOut(), classic, newStyle)
}

// toStop is how long after SIGSTOP a process has stopped for certain. It has nothing
// to accept from then on, since its lease has run out when it goes on.
const toStop = 100 * time.Millisecond

// owes is how many occurrences a replica has accepted and not written.
func (m *member) owes() float64 {
	m.t.Helper()
	return m.metrics().Sum("eventd_occurrences_pending")
}

// stand is a time that a leader stood still, or was cut off.
type stand struct {
	before
	began, ended time.Time
}

// tooLate returns which occurrences a former leader accepted that were posted when
// it could accept nothing any more: so long after it stood still or was cut off. It
// also counts the occurrences that it wrote when that was over.
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
