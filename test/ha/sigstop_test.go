package ha

import (
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/testenv"
)

// The leader is stopped for longer than its lease, and continues when another one
// leads: it steps down and accepts nothing, and its pending occurrences count once.
func TestLeaderThatStandsStillAddsWhatItOwesOnce(t *testing.T) {
	l := startLoad(t, testenv.Shared(t), shortLease...)
	l.roles = l.watchRoles()
	deferred := l.newDeferred(longrun.Either(1000, 200))
	var stands []stand
	repeat(t, 20, 2, func(int) {
		deferred.postAll(deferred.all)
		b := l.observe()
		if b.leader.read("eventd_occurrences_pending") == 0 {
			t.Errorf("%s has nothing pending when it stops", b.leader.name)
		}
		stopped := time.Now()
		b.leader.signal(syscall.SIGSTOP)
		l.waitTaken(b, stopped)
		b.leader.signal(syscall.SIGCONT)
		if b.leader.leads() {
			if _, again := l.lease.again(b.term); !again {
				t.Errorf("%s leads when it goes on", b.leader.name)
			}
		}
		stands = append(stands, stand{b, stopped})
		await.Until(t, "the former leader to settle what was pending", func() bool { return b.leader.read("eventd_occurrences_pending") == 0 })
		l.waitWrite()
	})
	l.finish(t, true, deferred)
	l.wantNoneTooLate(t, stands, toStop)
}

// toStop is how long after SIGSTOP a process has certainly stopped. From then on it
// must accept nothing, since its lease has expired when it continues.
const toStop = 100 * time.Millisecond

// stand is a time that a leader stood still, or was cut off.
type stand struct {
	before
	began time.Time
}

// wantNoneTooLate checks that no former leader has accepted an occurrence that was
// posted atTheLatest after it was stopped or cut off.
func (l *load) wantNoneTooLate(t *testing.T, stands []stand, atTheLatest time.Duration) {
	t.Helper()
	posts, _ := l.ledger()
	var late []post
	for _, s := range stands {
		again, led := l.lease.again(s.term)
		for _, c := range l.journal.since(s.began) {
			if c.writer != s.writer || led && c.at.After(again) {
				continue
			}
			for _, key := range c.keys { // of which recorders have no posts
				if made := posts[key]; made.began.After(s.began.Add(atTheLatest)) {
					late = append(late, made)
				}
			}
		}
	}
	if len(late) > 0 {
		t.Errorf("%d occurrences were accepted by a leader whose lease had expired, such as %+v", len(late), late[0])
	}
}
