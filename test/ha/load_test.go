package ha

import (
	"fmt"
	"maps"
	"net/http"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// usual is the rate of the plain clients: in full runs high enough to measure gaps of some
// milliseconds.
func usual() rate { return longrun.Either(rate{100, 80}, rate{25, 20}) }

// many is a rate at which most occurrences are deferred.
func many() rate { return longrun.Either(rate{500, 100}, rate{100, 20}) }

// deferAll are flags for a budget of one write per object, for as long as a test takes.
var deferAll = []string{"--budget-burst=1", "--budget-qps=0.00001"}

// load is continuous: plain clients and recorders, all of them through the Service,
// and the journal of their writes.
type load struct {
	*fleet
	*plain
	*recorders
	journal *journal
	roles   *roles // nil unless a test watches them
	ends    []func()
}

// startLoad starts a fleet with a load, and returns when the first of it is stored.
func startLoad(t *testing.T, cluster *testenv.ControlPlane, flags ...string) *load {
	t.Helper()
	return startLoadAt(t, usual(), cluster, flags...)
}

func startLoadAt(t *testing.T, r rate, cluster *testenv.ControlPlane, flags ...string) *load {
	t.Helper()
	return startFleet(t, cluster, flags...).startLoad(t, r)
}

// through is the configuration of a client of the Service.
func (f *fleet) through(credentials *rest.Config) *rest.Config {
	config := f.service.through(credentials)
	config.Timeout = f.timeout
	return config
}

// startLoad starts a load of a fleet.
func (f *fleet) startLoad(t *testing.T, r rate) *load {
	t.Helper()
	cluster := f.cluster
	namespace := cluster.Namespace(t)
	clients := f.through(replica.Reporter(t, cluster, namespace))
	l := &load{
		fleet:     f,
		plain:     newPlain(t, clients, namespace),
		recorders: newRecorders(t, clients, namespace),
		journal:   keepJournal(t, cluster.Config(), namespace),
	}
	l.ends = []func(){l.recorders.goOn(t), l.plain.goOn(r)}
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
	d := &deferred{plain: newPlain(f.t, f.through(replica.Reporter(f.t, f.cluster, namespace)), namespace)}
	for i := 0; len(d.all)-i < least; i++ {
		for j := range seriesPerObject {
			d.all = append(d.all, series{fmt.Sprint("deferred-", i), fmt.Sprint("Reason", j)})
		}
	}
	return d
}

// outcome is what became of a load.
type outcome struct {
	fate
	seen answers
}

// stopPosting returns when all posts are acknowledged.
func (l *load) stopPosting() {
	for _, end := range l.ends {
		end()
	}
}

// end ends the load when everything is acknowledged, and then the replicas. It checks
// that everything is stored that was acknowledged as written, that nothing is counted
// twice, that no client got an error after which it does not retry, and that no two
// replicas have led at once if their roles were watched. A request that hangs may end
// with 504 at the client's own deadline, where mayTimeOut allows it: docs/election.md.
func (l *load) end(t *testing.T, mayTimeOut bool) outcome {
	t.Helper()
	l.stopPosting()
	l.recorders.end(t)
	if l.roles != nil {
		l.roles.stop()
		l.roles.wantOneAtATime(t)
	}
	l.fleet.stop()
	l.journal.waitComplete(t)
	o := outcome{seen: l.service.answered(), fate: l.fates()}
	o.wantKept(t)
	errors := maps.Clone(o.seen)
	if mayTimeOut {
		maps.DeleteFunc(errors, func(a answer, _ int) bool { return a.code == http.StatusGatewayTimeout })
	}
	if final := errors.final(); final != "" {
		t.Errorf("answers after which clients do not retry: %s", final)
	}
	return o
}

// finish is end where no process was killed: the ledgers of all processes, too, say that
// nothing is lost.
func (l *load) finish(t *testing.T, mayTimeOut bool, also ...*deferred) outcome {
	t.Helper()
	o := l.end(t, mayTimeOut)
	sum := l.accounts
	// What was refused, its client has posted again.
	settled := sum.Written() + sum["replayed"] + sum["found"] + sum["handed_over"] + sum["dropped"]
	if sum["recorded"] == 0 || sum["recorded"]+sum["adopted"] != settled || sum["pending"] != 0 {
		t.Errorf("the ledgers of all processes: %v", sum)
	}
	l.wantAllStored(t, o, also...)
	return o
}

// wantAllStored checks that everything is stored that was acknowledged, deferred or not, and
// counts once.
func (l *load) wantAllStored(t *testing.T, o outcome, also ...*deferred) {
	t.Helper()
	if n := len(o.forgotten); n > 0 {
		t.Errorf("%d occurrences that were acknowledged with 202 are not stored, such as %+v", n, o.forgotten[0])
	}
	for _, p := range append(also, &deferred{plain: l.plain}) {
		p.wantStored(t, l.cluster)
	}
}
