package ha

import (
	"math"
	"slices"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
)

// durations that were measured.
type durations []time.Duration

// percentile is the least of them that the given percentage does not exceed.
func (d durations) percentile(percent int) time.Duration {
	sorted := slices.Sorted(slices.Values(d))
	return sorted[max(0, int(math.Ceil(float64(len(sorted)*percent)/100))-1)]
}

// before is the state before a fault of the leader.
type before struct {
	leader *member
	term   term
	writer string // the sink instance of the leader
}

// observe waits for a second of writes under one leader, and returns the leader and
// its writer. On an overloaded machine a short lease may be lost without a fault.
func (l *load) observe() before {
	l.t.Helper()
	const measured = time.Second
	end := time.Now().Add(await.Timeout)
	for time.Now().Before(end) {
		b := before{}
		b.leader, b.term = l.leader()
		began := time.Now()
		last := l.journal.waitCommit(l.t, "a second of writes", began.Add(measured), func(c commit) bool { return l.isPostedAfter(c, began) })
		commits := l.journal.since(began)
		b.writer = last.writer
		if now, held := l.lease.holder(); held && now == b.term && isWrittenBy(commits, b.writer) {
			return b
		}
	}
	l.t.Fatal("not in time: a leader for a second")
	return before{}
}

// isWrittenBy reports whether one sink instance has written all occurrences that are
// written at once.
func isWrittenBy(commits []commit, writer string) bool {
	return !slices.ContainsFunc(commits, func(c commit) bool { return c.of.isSingle() && c.writer != writer })
}

// isPostedAfter reports whether a write has an occurrence of the load that was posted
// after a moment and is written at once.
func (l *load) isPostedAfter(c commit, moment time.Time) bool {
	return c.of.isSingle() && slices.ContainsFunc(c.keys, func(key string) bool {
		made, ok := l.find(key)
		return ok && made.began.After(moment)
	})
}

// waitTaken waits for the first write, by another one than the leader before, of
// what was posted after a moment.
func (l *load) waitTaken(b before, moment time.Time) commit {
	l.t.Helper()
	return l.journal.waitCommit(l.t, "a write of the new leader", moment, func(c commit) bool {
		return c.writer != b.writer && l.isPostedAfter(c, moment)
	})
}

// longestGap is the longest time, between two moments, without a write of an
// occurrence that is written at once.
func longestGap(commits []commit, from, to time.Time) (longest time.Duration) {
	last := from
	for _, c := range commits {
		if c.of.isSingle() && c.at.After(last) && c.at.Before(to) {
			longest, last = max(longest, c.at.Sub(last)), c.at
		}
	}
	return max(longest, to.Sub(last))
}

func TestGapsAndPercentilesAreMeasured(t *testing.T) {
	began := time.Now()
	at := func(ms int) time.Time { return began.Add(time.Duration(ms) * time.Millisecond) }
	one := series{object: single + "1"}
	commits := []commit{{at: at(10), of: one}, {at: at(15), of: one}, {at: at(40), of: series{object: "hot-1"}}, {at: at(60), of: one}, {at: at(200), of: one}}
	for _, test := range []struct{ from, to, want int }{
		{0, 70, 45},    // between two, though another kind is written meanwhile
		{0, 120, 60},   // after the last one
		{12, 16, 3},    // before the first one
		{20, 30, 10},   // none at all
		{10, 200, 140}, // to the end
	} {
		if got := longestGap(commits, at(test.from), at(test.to)); got != time.Duration(test.want)*time.Millisecond {
			t.Errorf("from %d to %d the longest gap is %s, want %d ms", test.from, test.to, got, test.want)
		}
	}
	var all durations
	for i := range 200 {
		all = append(all, time.Duration(200-i))
	}
	if p50, p99, p100 := all.percentile(50), all.percentile(99), all.percentile(100); p50 != 100 || p99 != 198 || p100 != 200 {
		t.Errorf("of 1 to 200 the percentiles are %d, %d and %d", p50, p99, p100)
	}
	if got := (durations{7}).percentile(50); got != 7 {
		t.Errorf("the middle of one is %d", got)
	}
}
