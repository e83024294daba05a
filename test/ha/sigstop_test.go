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
	l := startLoad(t, testenv.Shared(t), shortLease...)
	l.roles = l.watchRoles()
	deferred := l.newDeferred(longrun.Either(1000, 200))
	var first, down durations
	var pending []float64
	var stands []stand
	times := repeat(t, repetitions(20, 2), func(int) {
		deferred.postAll(deferred.all)
		b := l.observe()
		n := b.leader.read("eventd_occurrences_pending")
		if n == 0 {
			t.Errorf("%s has nothing pending when it stops", b.leader.name)
		}
		pending = append(pending, n)
		stopped := time.Now()
		b.leader.signal(syscall.SIGSTOP)
		first = append(first, l.waitTaken(b, stopped).at.Sub(stopped))
		continued := time.Now()
		b.leader.signal(syscall.SIGCONT)
		if b.leader.leads() {
			if _, again := l.lease.again(b.term); !again {
				t.Errorf("%s leads when it goes on", b.leader.name)
			}
		}
		down = append(down, time.Since(continued))
		stands = append(stands, stand{b, stopped, continued})
		await.Until(t, "the former leader to settle what was pending", func() bool { return b.leader.read("eventd_occurrences_pending") == 0 })
		l.waitWrite()
	})
	o, d := l.finish(t, true, deferred)
	late, after := l.wantNoneTooLate(t, stands, toStop)
	stallFigures.Add(append([]any{times, milliseconds(first), milliseconds(down), figures.Spread(pending...), after, late}, o.cells(d)...)...)
}

// toStop is how long after SIGSTOP a process has certainly stopped. From then on it
// must accept nothing, since its lease has expired when it continues.
const toStop = 100 * time.Millisecond

// stand is a time that a leader stood still, or was cut off.
type stand struct {
	before
	began, ended time.Time
}

// wantNoneTooLate checks that no former leader has accepted an occurrence that was
// posted atTheLatest after it was stopped or cut off. It returns how many there are,
// and how many occurrences it wrote afterwards.
func (l *load) wantNoneTooLate(t *testing.T, stands []stand, atTheLatest time.Duration) (late, written int) {
	t.Helper()
	posts, _ := l.ledger()
	var example post
	for _, s := range stands {
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
				if made.began.After(s.began.Add(atTheLatest)) {
					late, example = late+1, made
				}
			}
		}
	}
	if late > 0 {
		t.Errorf("%d occurrences were accepted by a leader whose lease had expired, such as %+v", late, example)
	}
	return late, written
}
