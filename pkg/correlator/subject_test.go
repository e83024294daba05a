package correlator

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
	"unsafe"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A subject with one series fits into an allocation of 96 bytes.
func TestUsualSubjectIsSmall(t *testing.T) {
	if size := unsafe.Sizeof(subject{}); size > 96 {
		t.Errorf("%d bytes", size)
	}
}

// A subject counts as many as it has of series or of groups, whatever is more.
func TestASubjectCountsItsSeriesAndGroups(t *testing.T) {
	for want, r := range map[int64]*rest{
		1: nil,
		4: {series: make([]series, 3), groups: make([]fullGroup, 1)},
		6: {series: make([]series, 2), groups: make([]fullGroup, 5)},
	} {
		if got := (&subject{rest: r}).weight(); got != want {
			t.Errorf("%d, want %d", got, want)
		}
	}
}

// modelGroup is a group as a slice of messages.
type modelGroup struct {
	key     uint64
	seen    time.Duration
	members []uint64
}

// admit is subject.admit on a slice of groups.
func modelAdmit(groups *[]modelGroup, key, member uint64, o *Options, now time.Duration) bool {
	i := slices.IndexFunc(*groups, func(g modelGroup) bool { return g.key == key })
	switch {
	case i >= 0:
	case len(*groups) < o.MaxSeries:
		i = len(*groups)
		*groups = append(*groups, modelGroup{key: key})
	default:
		i = 0
		for j, g := range *groups {
			if g.seen < (*groups)[i].seen {
				i = j
			}
		}
		(*groups)[i] = modelGroup{key: key}
	}
	g := &(*groups)[i]
	if now-g.seen > o.Interval {
		g.members = nil
	}
	g.seen = now
	switch {
	case slices.Contains(g.members, member):
		return true
	case len(g.members)+1 >= o.MaxMessages:
		return false
	}
	g.members = append(g.members, member)
	return true
}

// Groups are kept as in a slice, whatever their keys are: the keys 0 of groups and messages too.
func TestGroupsAreKeptAsInASlice(t *testing.T) {
	for seed := range uint64(500) {
		rng := rand.New(rand.NewPCG(seed, 0))
		o := &Options{MaxSeries: 1 + rng.IntN(4), MaxMessages: 1 + rng.IntN(5), Interval: 10 * time.Second}
		s, model, now := &subject{}, []modelGroup{}, time.Duration(0)
		for i := range 200 {
			key, member := 2*rng.Uint64N(6), 2*rng.Uint64N(6)
			now += time.Duration(rng.IntN(8)*rng.IntN(2)) * time.Second
			want := modelAdmit(&model, key, member, o, now)
			if got := s.admit(key, member, o, now); got != want {
				t.Fatalf("%d, step %d: message %d of group %d has its own Event: %v, want %v", seed, i, member, key, got, want)
			}
		}
	}
}

// A subject without series knows none, not even that whose key is 0.
func TestNewSubjectKnowsNoSeries(t *testing.T) {
	used := &subject{}
	*used.add(&bucket{}, 2, 0) = series{key: 7, writes: 1}
	*used.add(&bucket{}, 2, 0) = series{key: 8, writes: 1}
	if used.find(7) != used.at(0) || used.find(8) != used.at(1) || used.find(0) != nil {
		t.Errorf("found %v, %v and %v", used.find(7), used.find(8), used.find(0))
	}
	for _, key := range []uint32{0, 7, 8} {
		if r := new(subject).find(key); r != nil {
			t.Errorf("found %+v", r)
		}
	}
}

// However often a series is written, it is known that it was, and more than once.
func TestNumberOfWritesDoesNotOverflow(t *testing.T) {
	r := series{writes: 1}
	for i := range 1000 {
		if r.wrote(); r.writes < 2 {
			t.Fatalf("%d after %d writes", r.writes, i+2)
		}
	}
}

// Nobody can choose the key of a group that has the hash of another: of equal parts of keys follow no
// equal hashes, and each process has its own.
func TestHashOfASeriesIsSecret(t *testing.T) {
	first := newSeeds()
	for bit := range 64 {
		k, other := occurrence.Key{B: 0x0123456789abcdef}, occurrence.Key{B: 0x0123456789abcdef ^ 1<<bit}
		same := 0
		for range 20 {
			s := newSeeds()
			if s.seriesKey(k) == s.seriesKey(other) {
				same++
			}
			if s.seriesKey(k) == first.seriesKey(k) {
				t.Errorf("two processes have the same hash")
			}
		}
		if same > 1 {
			t.Errorf("keys that differ in bit %d have the same hash in %d of 20 processes", bit, same)
		}
	}
}
