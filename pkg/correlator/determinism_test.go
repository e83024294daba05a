package correlator_test

import (
	"fmt"
	"hash/fnv"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
)

// decide runs a stream through several correlators, by subject, and returns the decisions
// in the order of the stream, with the digests of the series in place of the keys.
func decide(t *testing.T, s stream, shards uint32) (out []string) {
	t.Helper()
	all := make([]*correlator.Correlator, shards)
	for i := range all {
		all[i] = newCorrelator(t, s.setup.ours())
	}
	s.each(func(_ int, event *corev1.Event, now time.Time) {
		h := fnv.New32a()
		h.Write([]byte(s.setup.keys.ourSubject(event)))
		c := all[h.Sum32()%shards]
		d := c.Correlate(&occurrence.Occurrence{Event: event, Weight: 1, Recorded: now}, now)
		out = append(out, fmt.Sprint(d.Reason, d.Drop, d.Deferred, d.Delay, d.Target.Series(), d.Target.Combined, d.Target.Event.Message))
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
			if got := decide(t, s, shards); !slices.Equal(got, once) {
				t.Fatalf("%d correlators decide on\n%+v\n%v, one decides\n%v", shards, s, got, once)
			}
		}
	}
}
