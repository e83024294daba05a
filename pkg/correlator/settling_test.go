package correlator_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/eventd/eventd/internal/identity"
)

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
	for seed := *firstSeed; seed < *firstSeed+uint64(*streams)/5; seed++ {
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
