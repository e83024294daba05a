package ha

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
)

// perSecond is the rate of the plain clients: in full runs high enough to measure gaps
// of some milliseconds.
func perSecond() int { return longrun.Either(100, 50) }

// load is continuous: plain clients and recorders, all of them through the Service,
// and the journal of their writes.
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

// end ends the load when everything is acknowledged. It comes before the end of the
// replicas.
func (l *load) end() {
	l.t.Helper()
	for _, end := range l.ends {
		end()
	}
	l.recorders.end(l.t)
}

// deferred are occurrences whose writes are deferred: each object has many more
// series than its budget of writes.
type deferred struct {
	*plain
	all []series
}

const seriesPerObject = 52

// newDeferred prepares them, in a namespace of their own, so that at least least
// series are deferred when the budget of an object is one write.
func (f *fleet) newDeferred(least int) *deferred {
	f.t.Helper()
	namespace := f.cluster.Namespace(f.t)
	d := &deferred{plain: newPlain(f.t, f.service.through(replica.Reporter(f.t, f.cluster, namespace)), namespace)}
	for i := 0; len(d.all)-i < least; i++ {
		for j := range seriesPerObject {
			d.all = append(d.all, series{fmt.Sprint("deferred-", i), fmt.Sprint("Reason", j)})
		}
	}
	return d
}

// endColumns are the last columns of tables, with the cells that finish returns.
var endColumns = []string{
	"occurrences", "posted again", "503 or 429 with Retry-After", "lost", "counted twice", "beyond 64 names",
	"504 at the client's own deadline", "classic recorder: recorded -lost +twice", "new-style recorder",
}

// finish ends the load, the roles that were watched, and the replicas. It checks that
// nothing is lost or counted twice, and that no two replicas have led at once.
func (l *load) finish(t *testing.T, mayTimeOut bool, r *roles, also ...*deferred) (cells []any) {
	t.Helper()
	l.end()
	r.stop()
	l.stop()
	r.wantOneAtATime(t)
	l.wantNoFinalErrors(t, mayTimeOut)
	l.wantSettled(t)
	d := l.wantStored(t, l.cluster)
	for _, other := range also {
		d.Add(other.wantStored(t, l.cluster))
	}
	fates := l.fates()
	fates.wantKept(t)
	if n := len(fates.forgotten); n > 0 {
		t.Errorf("%d deferred occurrences are not stored, and nobody was killed", n)
	}
	classic, newStyle := l.recorded(t)
	seen := l.service.answered()
	return []any{fates.names, fates.retried, seen.repeated(), d.Lost, d.Twice, len(fates.outside), seen.timedOut(), classic, newStyle}
}

// recorded compares the counts of the recorders' Events with what they have recorded.
func (l *load) recorded(t *testing.T) (classic, newStyle recorded) {
	t.Helper()
	show := func(a *reports) recorded {
		return a.compare(t, storedBy(t, l.cluster, l.plain.namespace, a.source))
	}
	return show(l.classicReports), show(l.newStyleReports)
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

// wantNoFinalErrors checks that no client got an error after which it does not retry.
// A request that hangs may end with 504 at the client's own deadline, where
// mayTimeOut allows it: docs/election.md.
func (f *fleet) wantNoFinalErrors(t *testing.T, mayTimeOut bool) {
	t.Helper()
	seen := f.service.answered()
	if mayTimeOut {
		maps.DeleteFunc(seen, func(a answer, _ int) bool { return a.code == http.StatusGatewayTimeout })
	}
	if final := seen.final(); final != "" {
		t.Errorf("answers after which clients do not retry: %s", final)
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
