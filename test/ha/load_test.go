package ha

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/eventd/eventd/test/replica"
)

// perSecond is how many occurrences the plain clients post: in full often enough
// for a gap of some milliseconds to be seen.
func perSecond() int { return either(100, 50) }

// load is what goes on all the time: plain clients and recorders, all of them
// through the Service, and the journal of what becomes of it.
type load struct {
	*fleet
	*plain
	*recorders
	journal *journal
	ends    []func()
}

// startLoad begins the load, and returns when the first of it is stored.
func (f *fleet) startLoad() *load {
	f.t.Helper()
	namespace := f.cluster.Namespace(f.t)
	clients := f.service.through(replica.Reporter(f.t, f.cluster, namespace))
	l := &load{
		fleet:     f,
		plain:     newPlain(f.t, clients, namespace),
		recorders: newRecorders(f.t, clients, namespace),
		journal:   keepJournal(f.t, f.cluster.Config(), namespace),
	}
	l.ends = []func(){l.recorders.goOn(), l.plain.goOn(perSecond())}
	l.waitWrite()
	return l
}

// waitWrite waits until something that is posted from now on is stored.
func (l *load) waitWrite() {
	l.t.Helper()
	l.waitPosted(time.Now())
}

// waitPosted waits until something is stored that was posted after a moment.
func (l *load) waitPosted(moment time.Time) commit {
	l.t.Helper()
	return l.journal.waitCommit(l.t, "a write", moment, func(c commit) bool { return l.isPostedAfter(c, moment) })
}

// end ends the load, when everything is acknowledged, and before the replicas end:
// then nobody asks them any more.
func (l *load) end() {
	l.t.Helper()
	for _, end := range l.ends {
		end()
	}
	l.recorders.end(l.t)
}

// owed are occurrences whose writes are put off: the series of each object are
// many more than the budget of writes that is spent on it.
type owed struct {
	*plain
	all []series
}

const seriesPerObject = 52

// newOwed prepares them, in a namespace of their own, so that the deferred series
// are at least so many when the budget of an object is one write.
func (f *fleet) newOwed(deferred int) *owed {
	f.t.Helper()
	namespace := f.cluster.Namespace(f.t)
	o := &owed{plain: newPlain(f.t, f.service.through(replica.Reporter(f.t, f.cluster, namespace)), namespace)}
	for i := 0; len(o.all)-i < deferred; i++ {
		for j := range seriesPerObject {
			o.all = append(o.all, series{fmt.Sprint("owed-", i), fmt.Sprint("Reason", j)})
		}
	}
	return o
}

// recorded is by how much what the recorders' Events count is not what they were
// told.
func (l *load) recorded(t *testing.T) (classic, newStyle recorded) {
	t.Helper()
	show := func(a *account) recorded {
		return a.compare(t, stored(t, l.cluster, l.plain.namespace, a.source))
	}
	return show(l.classicAccount), show(l.newStyleAccount)
}

// wantSettled checks the ledgers of all processes that ended in order: nothing is
// dropped, uncertain or pending.
func (f *fleet) wantSettled(t *testing.T) replica.Accounts {
	t.Helper()
	sum := f.accounts()
	if sum["recorded"] == 0 || sum["recorded"] != sum.Written()+sum["replayed"] || sum["pending"] != 0 {
		t.Errorf("the ledgers of all processes: %v", sum)
	}
	return sum
}

// wantNoFinalErrors checks that no client was told what it does not try again after.
// Where what a request waits for hangs for long, it may be told that the time is up
// that it gave itself: docs/election.md says where.
func (f *fleet) wantNoFinalErrors(t *testing.T, mayTimeOut bool) {
	t.Helper()
	seen := f.service.answered()
	if mayTimeOut {
		maps.DeleteFunc(seen, func(a answer, _ int) bool { return a.code == http.StatusGatewayTimeout })
	}
	if final := seen.final(); final != "" {
		t.Errorf("answers that clients do not try again after: %s", final)
	}
}

// milliseconds shows the middle, the 99th percentile and the greatest of some
// durations.
func milliseconds(all durations) string {
	if len(all) == 0 {
		return ""
	}
	return fmt.Sprintf("%d / %d / %d", all.percentile(50).Milliseconds(), all.percentile(99).Milliseconds(), all.percentile(100).Milliseconds())
}
