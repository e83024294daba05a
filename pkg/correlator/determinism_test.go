package correlator_test

import (
	"hash/fnv"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// decision has the parts of a Decision that are the same for every correlator. Keys are
// not, so the digest identifies the series.
type decision struct {
	reason   correlator.Reason
	drop     occurrence.Reason
	series   identity.Digest
	message  string
	combined bool
	delay    time.Duration
	deferred correlator.Deferral
}

// decide runs a stream through several correlators, by subject, and returns the decisions
// in the order of the stream.
func decide(t *testing.T, s stream, shards uint32) []decision {
	t.Helper()
	all := make([]*correlator.Correlator, shards)
	for i := range all {
		var err error
		if all[i], err = correlator.New(s.setup.ours()); err != nil {
			t.Fatal(err)
		}
	}
	var out []decision
	s.each(func(_ int, event *corev1.Event, now time.Time) {
		h := fnv.New32a()
		h.Write([]byte(s.setup.keys.ourSubject(event)))
		c := all[h.Sum32()%shards]
		d := c.Correlate(&occurrence.Occurrence{Event: event, Weight: 1, Recorded: now}, now)
		out = append(out, decision{d.Reason, d.Drop, d.Target.Series(), d.Target.Event.Message, d.Target.Combined, d.Delay, d.Deferred})
	})
	return out
}

// The same occurrences at the same times give the same decisions, also when subjects are
// distributed over several correlators.
func TestDecisionsDependOnTheSubjectAlone(t *testing.T) {
	for seed := *firstSeed; seed < *firstSeed+uint64(*streams)/2; seed++ {
		s := generate(seed)
		if s.setup.evicts() || s.setup.keys.group != nil {
			continue // evictions and custom groups depend on other subjects
		}
		once := decide(t, s, 1)
		for _, shards := range []uint32{1, 2, 3, 8} {
			for n, got := range decide(t, s, shards) {
				if got != once[n] {
					t.Fatalf("%d correlators decide on item %d of\n%v\n%+v, one decides\n%+v", shards, n, s, got, once[n])
				}
			}
		}
	}
}
