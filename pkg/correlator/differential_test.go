package correlator_test

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/test/seeds"
)

// The stored Events are those of client-go's correlator, except for the listed differences,
// and complete where client-go loses counts.
//
//	go test ./pkg/correlator -run Agrees -seed=42
func TestCorrelatorAgreesWithClientGo(t *testing.T) {
	for seed := range seeds.Of(250) {
		s := generate(seed)
		if err := check(t, s); err != nil {
			t.Fatalf("%v\nof %d items: %+v", err, len(s.items), s)
		}
	}
}

// check returns an error if the result of a stream is wrong, alone or compared with
// client-go.
func check(t *testing.T, s stream) error {
	ours, err := run(t, s)
	if err != nil {
		return err
	}
	if s.setup.newStyle {
		return nil
	}
	theirs, err := upstream(s)
	if err != nil {
		return err
	}
	groups := map[string][]place{}
	all := maps.Clone(ours.counts)
	maps.Copy(all, theirs.counts)
	for p := range all {
		groups[p.group] = append(groups[p.group], p)
	}
	for group, places := range groups {
		c := comparison{ours, theirs.outcome, group, places}
		if err := c.check(); err != nil {
			return fmt.Errorf("group %s: %w", group, err)
		}
	}
	return checkSubjects(ours, theirs.outcome)
}

// checkWrites checks that no subject makes more writes than its bucket has tokens. Two
// writes of a series are at least a second apart, unless it was quiet for an interval, or
// several subjects share it.
func checkWrites(d *downstream) error {
	if d.setup.evicts() {
		return nil // an evicted subject returns with a full bucket, and its series are new
	}
	made, last := map[string]int{}, map[identity.Digest]time.Time{}
	for _, w := range d.sink.writes {
		made[w.subject]++
		elapsed := w.at.Sub(d.began[w.subject])
		if most := float64(d.setup.burst) + float64(d.setup.qps)*elapsed.Seconds(); float64(made[w.subject]) > most+1e-6 {
			return fmt.Errorf("%d writes of %s within %v, at most %f are allowed", made[w.subject], w.subject, elapsed, most)
		}
		before, again := last[w.digest]
		if again && !w.fresh && len(d.subjectsOf[w.digest]) == 1 && w.at.Sub(before) < time.Second {
			return fmt.Errorf("two writes of %q within %v", d.digests[w.digest], w.at.Sub(before))
		}
		last[w.digest] = w.at
	}
	return nil
}

// comparison compares one group of client-go's.
type comparison struct {
	ours   *downstream
	theirs *outcome
	group  string
	places []place
}

// check compares the stored counts and the numbers of writes. client-go loses what its
// budget refuses, unless a later occurrence carries the count; we defer it (difference 1).
// So client-go's count is a lower bound, and exact if its budget refused nothing.
func (c comparison) check() error {
	if slices.ContainsFunc(c.places, place.combined) {
		return c.checkAggregated()
	}
	for _, p := range c.places {
		if err := c.compare(p.series, []place{p}); err != nil {
			return err
		}
	}
	return nil
}

// compare compares both sides in some places of the group.
func (c comparison) compare(what string, places []place) error {
	ours, ourWrites := c.ours.in(places)
	theirs, theirWrites := c.theirs.in(places)
	switch refused := c.theirs.refused[c.group]; {
	case theirs > ours:
		return fmt.Errorf("%s: client-go has counted %d, we %d", what, theirs, ours)
	case refused == 0 && theirs != ours:
		return fmt.Errorf("%s: client-go has counted %d, we %d, and its budget has refused nothing", what, theirs, ours)
	case refused == 0 && ourWrites > theirWrites:
		return fmt.Errorf("%s: we have made %d writes, client-go %d, and its budget has refused nothing", what, ourWrites, theirWrites)
	}
	return nil
}

// checkAggregated compares groups that had too many messages.
func (c comparison) checkAggregated() error {
	if err := c.compare("all together", c.places); err != nil {
		return err
	}
	if c.ours.setup.evicts() || len(c.ours.groupsIn[c.group]) > 1 {
		// The two may combine different occurrences: groups are evicted (difference 8),
		// or a group of client-go's is several of ours (differences 6 and 7).
		return nil
	}
	combined := place{group: c.group}
	switch ours, theirs := c.ours.counts[combined], c.theirs.counts[combined]; {
	case theirs > 0 && ours == 0:
		return fmt.Errorf("client-go has a combined Event, we have none")
	case c.theirs.refused[c.group] > 0:
		return nil
	case ours > 0 && theirs == 0:
		return fmt.Errorf("we have a combined Event, client-go has none")
	}
	return c.checkOwn()
}

// checkOwn compares the Events of single messages. client-go evicts a random message for
// each new one (difference 4), and then counts it on the combined Event. So the counts
// differ at random, but every message with its own Event here has one in client-go.
func (c comparison) checkOwn() error {
	theirs := map[string]bool{}
	for _, p := range c.places {
		if c.theirs.counts[p] > 0 && !p.combined() {
			theirs[c.ours.members[p]] = true
		}
	}
	for _, p := range c.places {
		if c.ours.counts[p] > 0 && !p.combined() && !theirs[c.ours.members[p]] {
			return fmt.Errorf("%s: we have an Event of its own, client-go has none", p.series)
		}
	}
	return nil
}

// checkSubjects compares the numbers of writes of a subject. client-go uses every token at
// once, so we make at most as many writes without a delay from the same bucket. Deferred
// writes come on top (difference 1).
func checkSubjects(ours *downstream, theirs *outcome) error {
	if ours.setup.evicts() {
		return nil
	}
	atOnce := map[string]int{}
	for _, w := range ours.sink.writes {
		if w.Delay == 0 {
			atOnce[w.subject]++
		}
	}
	for subject, of := range ours.subjectsIn {
		if len(of) > 1 {
			continue // a bucket for each reporter (difference 6)
		}
		for our := range of {
			if n := theirs.subjectWrites[subject]; atOnce[our] > n {
				return fmt.Errorf("subject %s: we have made %d writes at once, client-go %d", subject, atOnce[our], n)
			}
		}
	}
	return nil
}

// place identifies an Event by client-go's keys, so that it is comparable on both sides.
type place struct {
	group  string
	series string // "" for the combined Event of the group
}

func (p place) combined() bool { return p.series == "" }

// placeOf returns the place where an occurrence is counted. client-go ignores the reporter
// when it counts, though not when it groups (difference 6).
func placeOf(k keys, e *corev1.Event, combined bool) place {
	anybodys := *e
	anybodys.ReportingController, anybodys.ReportingInstance = "", ""
	group, _ := k.clientGoGroup(&anybodys)
	if combined {
		return place{group: group}
	}
	return place{group: group, series: k.clientGoSeries(&anybodys)}
}

// outcome has the stored counts and the writes of one side.
type outcome struct {
	counts map[place]int64
	writes map[place]int
	// refused is the number of occurrences that client-go's budget refused, by group.
	refused map[string]int
	// subjectWrites are the writes by subject, with the keys of that side.
	subjectWrites map[string]int
}

func newOutcome() *outcome {
	return &outcome{
		counts: map[place]int64{}, writes: map[place]int{},
		refused: map[string]int{}, subjectWrites: map[string]int{},
	}
}

// in sums over some places.
func (o *outcome) in(places []place) (count int64, writes int) {
	for _, p := range places {
		count += o.counts[p]
		writes += o.writes[p]
	}
	return count, writes
}

// soon is the time after which the count of a quiet series is stored, if its subject has at
// most as many series as settle.
const soon = 30 * time.Second

// settles is the number of series of a subject that settle in time.
const settles = 10

// storm returns up to ten series of one subject. Each begins at any time, and until its
// last occurrence is never quiet for a heartbeat.
func storm(seed uint64) stream {
	rng := rand.New(rand.NewPCG(seed, 2))
	s := stream{seed: seed, setup: defaultSetup()}
	s.setup.latency = time.Duration(rng.Int64N(int64(2 * time.Second)))
	type dated struct {
		at time.Duration
		item
	}
	var all []dated
	series := 1 + rng.IntN(settles)
	alike := rng.IntN(2) == 0 // then they are one group, and the tenth is its combined Event
	heartbeat := float64(s.setup.ours().Heartbeat)
	latest := math.Pow(10, 12*rng.Float64()) // that one begins; up to 17 min
	for n := range series {
		scale := heartbeat * math.Pow(10, -4*rng.Float64())
		at := time.Duration(latest * rng.Float64())
		length := time.Duration(math.Pow(10, 8+5*rng.Float64())) // up to 2.8 h
		for until := at + length; at < until && len(all) < (n+1)*500; {
			i := item{message: n}
			if !alike {
				i.reason, i.field = n, n%3
			}
			all = append(all, dated{at, i})
			at += 1 + time.Duration(scale*rng.Float64())
		}
	}
	slices.SortFunc(all, func(a, b dated) int { return int(a.at - b.at) })
	var last time.Duration
	for _, d := range all {
		d.gap, last = max(1, d.at-last), d.at
		s.items = append(s.items, d.item)
	}
	return s
}

// The counts are stored 30 s after a storm of any length, with no more writes than the
// budget has tokens.
func TestTrueCountsAreStoredSoonAfterAnyStorm(t *testing.T) {
	for seed := range seeds.Of(50) {
		s := storm(seed)
		d, err := run(t, s)
		for digest, count := range d.added {
			if got := d.sink.storedAt(digest, d.last[digest].Add(soon)); got != count && err == nil {
				err = fmt.Errorf("%d of %q are stored %v after the last of %d", got, d.digests[digest], soon, count)
			}
		}
		if err != nil {
			t.Fatalf("%v: %+v", err, s)
		}
	}
}

// However many series of a subject continue, each is written in turn. Otherwise its Event
// would expire while it still occurs.
func TestSeriesThatGoOnAreWrittenInTurn(t *testing.T) {
	for _, series := range []int{1, 2, 3, 10, 12, 15, 30} {
		s := stream{setup: defaultSetup()}
		s.setup.maxMessages = unlimited
		const every, length = 20 * time.Second, 12 * time.Hour
		for n := range int(length/every) * series {
			s.items = append(s.items, item{gap: every / time.Duration(series), reason: n % series})
		}
		d, err := run(t, s)
		if err != nil {
			t.Fatalf("%d series: %v", series, err)
		}
		// A token comes every 300 s, or every 600 s as long as the reserve is filled.
		longest := time.Duration(series)*600*time.Second + time.Minute
		before := map[identity.Digest]time.Time{}
		for _, w := range d.sink.writes {
			if last, ok := before[w.digest]; ok && w.at.Sub(last) > longest {
				t.Errorf("%d series: one was not written for %v, want at most %v", series, w.at.Sub(last), longest)
			}
			before[w.digest] = w.at
		}
	}
}
