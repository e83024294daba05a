package app

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	// silentAfter is how long after its last report the state of a replica is not known.
	silentAfter = 3*relay.ReportPeriod + time.Second
	// forgetAfter is for how long a replica is listed that neither follows nor reports.
	forgetAfter = 10 * time.Minute
	// knownFor is how long after its last report a replica may be elected, as far as the leader knows, if
	// that did not say that it ends. So long, clients wait for it, and may be refused.
	knownFor = time.Minute
	// unknownFor is for how long a new leader takes for granted that there is another replica, which may
	// not have found it yet.
	unknownFor = 5 * time.Second
	// maxFollowers limits the replicas that are known: each has at most the 8 KiB of its report.
	maxFollowers = 16
)

// replicaState is what a replica reports to the leader. Other releases ignore what they do not know.
type replicaState struct {
	v1alpha1.Replica
	// Ending: it shuts down, so its silence is its end.
	Ending bool `json:"ending,omitempty"`
}

// follower is another replica, as the leader knows it.
type follower struct {
	sessions int          // that are open
	state    replicaState // as last reported
	reported time.Time    // zero if it has not
}

// followers are the other replicas that follow this one, or report to it. It is safe for concurrent use.
type followers struct {
	mu    sync.Mutex
	open  int                  // sessions
	known map[string]*follower // by name
	until time.Time            // so long, there may be one that is not known in this term
}

// follower returns the one with a name, which it adds. The mutex must be held.
func (f *followers) follower(name string) *follower {
	known, ok := f.known[name]
	if !ok {
		if f.known == nil {
			f.known = make(map[string]*follower)
		}
		known = &follower{}
		f.known[name] = known
	}
	return known
}

// addSessions counts sessions of a follower, whose name is "" in releases that send none.
func (f *followers) addSessions(name string, sessions int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.open += sessions
	f.follower(name).sessions += sessions
	f.forget(time.Now())
}

// sessions returns the number of open sessions.
func (f *followers) sessions() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.open
}

// report accepts what a replica reports of itself.
func (f *followers) report(name string, state []byte) error {
	var reported replicaState
	if err := json.Unmarshal(state, &reported); err != nil {
		return fmt.Errorf("decoding the state of a replica: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	known := f.follower(name)
	known.state, known.reported = reported, now
	f.forget(now)
	return nil
}

// begin forgets what was reported in a former term of this replica.
func (f *followers) begin() {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.until = now.Add(unknownFor)
	for _, known := range f.known {
		if until := known.reported.Add(knownFor); !known.state.Ending && until.After(f.until) {
			f.until = until
		}
	}
	maps.DeleteFunc(f.known, func(_ string, known *follower) bool { return known.sessions == 0 && known.silent(now) })
}

// mayFollow reports whether there is another replica that may be elected, though it does not follow now;
// see sink.Options.OtherReplica.
func (f *followers) mayFollow() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if now.Before(f.until) {
		return true
	}
	for _, known := range f.known {
		if !known.state.Ending && now.Sub(known.reported) < knownFor {
			return true
		}
	}
	return false
}

func (f *follower) silent(now time.Time) bool { return now.Sub(f.reported) > silentAfter }

// forget removes those that are gone and, of too many, those that were silent for longest. The mutex must be
// held.
func (f *followers) forget(now time.Time) {
	maps.DeleteFunc(f.known, func(_ string, known *follower) bool {
		return known.sessions == 0 && known.silent(now) && (known.state.Ending || now.Sub(known.reported) > forgetAfter)
	})
	for len(f.known) > maxFollowers {
		oldest := ""
		for name, known := range f.known {
			if known.sessions == 0 && (f.known[oldest] == nil || known.reported.Before(f.known[oldest].reported)) {
				oldest = name
			}
		}
		if f.known[oldest] == nil {
			return // all have sessions, which are limited
		}
		delete(f.known, oldest)
	}
}

// list returns the replicas with names, in their order. Whether one mirrors what is pending is not said where nothing is.
func (f *followers) list(mirrors bool) (out []v1alpha1.Replica) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	f.forget(now)
	for _, name := range slices.Sorted(maps.Keys(f.known)) {
		if name != "" {
			out = append(out, f.known[name].replica(name, now, mirrors))
		}
	}
	return out
}

// replica returns what is known of a follower.
func (f *follower) replica(name string, now time.Time, mirrors bool) v1alpha1.Replica {
	r := f.state.Replica
	r.Identity, r.Role, r.Follows, r.UnknownSince = name, roleStandby, nil, nil
	if mirrors {
		r.Follows = new(f.sessions > 0)
	}
	if !f.reported.IsZero() && f.silent(now) {
		r.Ready, r.Reason, r.UnknownSince = nil, "", new(metav1.NewTime(f.reported))
	}
	return r
}
