package replication

import (
	"math"
	"testing"
)

func TestCutsAtWhichAFollowerMayBeStay(t *testing.T) {
	for name, test := range map[string]struct {
		first, second uint64
		want          bool
	}{
		"before what is acknowledged":  {10, 20, false},
		"after what is acknowledged":   {20, 30, true},
		"between":                      {30, 40, true},
		"after what was sent":          {50, 60, true},
		"later":                        {60, 70, false},
		"a later occurrence is added":  {60, math.MaxUint64, false},
		"an occurrence is added to it": {50, math.MaxUint64, true},
	} {
		t.Run(name, func(t *testing.T) {
			c := cuts{acked: 20, sent: 50}
			ended := endedCuts(nil).add(c, func(uint64) int { return 1 })
			if got := c.keep(test.first, test.second); got != test.want || ended.keep(test.first, test.second) != test.want {
				t.Errorf("got %t, want %t", got, test.want)
			}
		})
	}
}

func TestCutsOfEndedStreamsStayUntilTheirEntriesHaveSettled(t *testing.T) {
	pending := func(upTo uint64) int { return int(upTo / 10) }
	e := endedCuts(nil).add(cuts{}, pending).add(cuts{acked: 10, sent: 20}, pending).add(cuts{acked: 20, sent: 30}, pending)
	for _, step := range []struct {
		removed uint64
		left    int
	}{{30, 2}, {40, 2}, {10, 2}, {20, 0}} {
		if e = e.removed(step.removed); len(e) != step.left {
			t.Errorf("%d streams after %d, want %d", len(e), step.removed, step.left)
		}
	}
}

// The oldest streams become one, which keeps the cuts of each.
func TestEndedStreamsAreBounded(t *testing.T) {
	var e endedCuts
	n := uint64(10 * maxEnded)
	for i := range n {
		e = e.add(cuts{acked: 10 * i, sent: 10*i + 10}, func(upTo uint64) int { return int(upTo) })
	}
	if len(e) != maxEnded {
		t.Errorf("%d streams", len(e))
	}
	e = e.add(cuts{acked: 10 * n, sent: 10*n + 1}, func(uint64) int { return 1 }).removed(10*n + 1)
	for i := range n {
		if cut := 10*i + 10; !e.keep(cut, cut+5) {
			t.Errorf("the cut after %d may go", cut)
		}
	}
}
