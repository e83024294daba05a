package correlator_test

import (
	"cmp"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// downstream is our correlator with the simulated sink behind it. Each decision is
// checked on its own.
type downstream struct {
	setup      setup
	correlator *correlator.Correlator
	sink       *simulation
	groups     groups
	*outcome

	digests map[identity.Digest]string // names of series
	names   map[string]named           // the reverse of digests
	places  map[identity.Digest]place
	members map[place]string     // of their groups
	began   map[string]time.Time // subjects, by their first occurrence
	added   map[identity.Digest]int64
	last    map[identity.Digest]time.Time // last occurrence
	// groupsIn has our groups in each of client-go's, subjectsIn our subjects.
	groupsIn, subjectsIn sets[string]
	// subjectsOf has the subjects of each Event: a custom group may have several.
	subjectsOf sets[identity.Digest]
}

// sets has a set of names for each key.
type sets[K comparable] map[K]map[string]bool

func (s sets[K]) insert(set K, member string) {
	if s[set] == nil {
		s[set] = map[string]bool{}
	}
	s[set][member] = true
}

func newDownstream(t *testing.T, s setup) *downstream {
	t.Helper()
	d := &downstream{
		setup: s, correlator: newCorrelator(t, s.ours()), outcome: newOutcome(),
		sink:    &simulation{latency: s.latency, now: beginning, series: map[identity.Digest]*pending{}},
		groups:  groups{setup: s, active: map[string]*activity{}},
		digests: map[identity.Digest]string{}, names: map[string]named{}, places: map[identity.Digest]place{},
		members: map[place]string{}, began: map[string]time.Time{},
		added: map[identity.Digest]int64{}, last: map[identity.Digest]time.Time{},
		groupsIn: sets[string]{}, subjectsIn: sets[string]{}, subjectsOf: sets[identity.Digest]{},
	}
	return d
}

// run correlates a stream, and returns the first error.
func run(t *testing.T, s stream) (*downstream, error) {
	t.Helper()
	d := newDownstream(t, s.setup)
	var err error
	s.each(func(n int, event *corev1.Event, now time.Time) {
		if err == nil {
			if err = d.record(event, now); err != nil {
				err = fmt.Errorf("item %d: %w", n, err)
			}
		}
	})
	if err == nil {
		d.sink.finish()
		err = cmp.Or(d.tally(), checkWrites(d))
	}
	return d, err
}

func (d *downstream) record(event *corev1.Event, now time.Time) error {
	d.sink.advance(now)
	decision := d.correlator.Correlate(&occurrence.Occurrence{Event: event, Weight: 1}, now)
	subject := d.setup.keys.ourSubject(event)
	if _, ok := d.began[subject]; !ok {
		d.began[subject] = now
	}
	if err := d.checkDecision(event, decision, now); err != nil {
		return err
	}
	digest := decision.Target.Series()
	p := placeOf(d.setup.keys, event, decision.Reason == correlator.Combined)
	d.places[digest] = p
	group, member := d.setup.keys.ourGroup(event)
	d.members[placeOf(d.setup.keys, event, false)] = member
	d.groupsIn.insert(p.group, group)
	d.subjectsIn.insert(d.setup.keys.clientGoSubject(event), subject)
	d.subjectsOf.insert(digest, subject)
	if err := d.checkJoin(decision, now); err != nil {
		return err
	}
	fresh := d.added[digest] == 0 || now.Sub(d.last[digest]) > d.setup.interval
	d.added[digest]++
	d.last[digest] = now
	d.sink.add(latest{decision, subject, fresh})
	return nil
}

// checkDecision checks one decision on its own.
func (d *downstream) checkDecision(event *corev1.Event, got correlator.Decision, now time.Time) error {
	combined := got.Reason == correlator.Combined
	message := event.Message
	if combined {
		message = d.setup.keys.combinedMessage(event)
	}
	switch want := d.groups.combined(event, now); {
	case got.Drop != occurrence.NoReason:
		return fmt.Errorf("dropped for %s, though no subject has too many series", got.Drop)
	case got.Delay < 0 || (got.Delay > 0) != (got.Deferred != correlator.NotDeferred):
		return fmt.Errorf("delay %v is called %v", got.Delay, got.Deferred)
	case combined != got.Target.Combined:
		return fmt.Errorf("%s goes to an Event of which combined is %v", got.Reason, got.Target.Combined)
	case !d.setup.evicts() && combined != want:
		return fmt.Errorf("combined is %v, want %v", combined, want)
	case got.Target.Event.Message != message:
		return fmt.Errorf("message is %q, want %q", got.Target.Event.Message, message)
	}
	return d.checkIdentity(event, got.Target, combined)
}

// checkIdentity checks that digests, keys and names of series are one to one.
func (d *downstream) checkIdentity(event *corev1.Event, target occurrence.Target, combined bool) error {
	name := join("own", event.Namespace, event.ReportingController, event.ReportingInstance, d.setup.keys.clientGoSeries(event))
	if combined {
		group, _ := d.setup.keys.ourGroup(event)
		name = join("combined", group)
	}
	got := named{target.Series(), target.Key}
	if was, ok := d.digests[got.digest]; ok && was != name {
		return fmt.Errorf("one digest for %q and %q", was, name)
	}
	if was, ok := d.names[name]; ok && was != got {
		return fmt.Errorf("two digests, or two keys, for %q", name)
	}
	d.digests[got.digest], d.names[name] = name, got
	return nil
}

// named has the digest and key of a series.
type named struct {
	digest identity.Digest
	key    occurrence.Key
}

// checkJoin checks that an occurrence joins the pending write of its series. It may bring
// that forward; only a settling write is deferred further.
func (d *downstream) checkJoin(got correlator.Decision, now time.Time) error {
	digest := got.Target.Series()
	of := d.sink.series[digest]
	if of == nil || of.count == 0 || d.setup.evicts() || len(d.subjectsOf[digest]) > 1 {
		return nil
	}
	if due := now.Add(got.Delay); due.After(of.due) && of.due.After(now) && of.Deferred != correlator.Settling {
		return fmt.Errorf("a write that is due in %v (%v) is deferred to %v (%v)", of.due.Sub(now), of.Deferred, got.Delay, got.Deferred)
	}
	return nil
}

// tally checks and sums the stored counts.
func (d *downstream) tally() error {
	stored := map[identity.Digest]int64{}
	for _, w := range d.sink.writes {
		stored[w.digest] += w.count
		d.writes[d.places[w.digest]]++
		d.subjectWrites[w.subject]++
	}
	for digest, want := range d.added {
		if got := stored[digest]; got != want {
			return fmt.Errorf("%d of %q are stored, %d happened", got, d.digests[digest], want)
		}
		d.counts[d.places[digest]] += want
	}
	return nil
}

// groups is the rule by which messages are combined: while a group is active, its first
// maxMessages-1 messages have their own Events.
type groups struct {
	setup  setup
	active map[string]*activity
}

type activity struct {
	last    time.Time
	members map[string]bool
}

func (g groups) combined(event *corev1.Event, now time.Time) bool {
	key, member := g.setup.keys.ourGroup(event)
	a := g.active[key]
	if a == nil || now.Sub(a.last) > g.setup.interval {
		a = &activity{members: map[string]bool{}}
		g.active[key] = a
	}
	a.last = now
	if !a.members[member] && len(a.members) < g.setup.maxMessages-1 {
		a.members[member] = true
	}
	return !a.members[member]
}

// simulation is a sink and a store behind a correlator, in simulated time. Its rules for
// writes are those of the sink:
//
//   - the latest decision on a series determines when its pending write is due;
//   - when it is due, all pending occurrences are written at once;
//   - what is added during a write belongs to the next one.
type simulation struct {
	latency time.Duration // of a write
	now     time.Time
	series  map[identity.Digest]*pending
	writes  []write
}

// pending has the occurrences of a series that are in no write yet.
type pending struct {
	latest
	count int64
	due   time.Time
	free  time.Time // the end of the last write
}

// latest is the last decision on a series.
type latest struct {
	correlator.Decision
	subject string
	fresh   bool // the series was quiet for an interval before
}

// write is a write that has begun.
type write struct {
	latest
	digest    identity.Digest
	at, lands time.Time
	count     int64
}

// add applies a decision that is made now.
func (s *simulation) add(d latest) {
	digest := d.Target.Series()
	p := s.series[digest]
	if p == nil {
		p = &pending{}
		s.series[digest] = p
	}
	p.count++
	p.due, p.latest = s.now.Add(d.Delay), d
	s.advance(s.now)
}

// advance makes the writes that are due until then, in order.
func (s *simulation) advance(until time.Time) {
	for s.write(until) {
	}
	s.now = until
}

// finish makes all pending writes.
func (s *simulation) finish() {
	for s.write(s.now.Add(correlator.MaxHeartbeat * 1000)) {
	}
}

// write makes the next write, if there is one until then.
func (s *simulation) write(until time.Time) bool {
	var next identity.Digest
	at := until.Add(1)
	for digest, p := range s.series {
		begins := p.due
		if p.free.After(begins) {
			begins = p.free
		}
		if p.count > 0 && begins.Before(at) {
			at, next = begins, digest
		}
	}
	if at.After(until) {
		return false
	}
	p := s.series[next]
	s.now, p.free = at, at.Add(s.latency)
	s.writes = append(s.writes, write{latest: p.latest, digest: next, at: at, lands: p.free, count: p.count})
	p.count = 0
	return true
}

// storedAt returns the count in the store at a time in the past.
func (s *simulation) storedAt(digest identity.Digest, at time.Time) (sum int64) {
	for _, w := range s.writes {
		if w.digest == digest && !w.lands.After(at) {
			sum += w.count
		}
	}
	return sum
}
