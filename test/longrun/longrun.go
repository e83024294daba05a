// Package longrun has the flag -soak, with which a suite runs in full: as long and
// as often as its figures need.
package longrun

import (
	"flag"
	"fmt"
	"os"
	"testing"
	"time"
)

// Full reports whether the suite runs in full.
var Full = flag.Bool("soak", false, "run every test in its full length")

// Either returns what a full run takes, or a short one.
func Either[T any](full, short T) T {
	if *Full {
		return full
	}
	return short
}

// every is how often a full run reports its progress.
const every = 15 * time.Second

// Progress of one test. The caller serializes its use.
type Progress struct {
	test            string
	done, total     int
	began, reported time.Time
}

// NewProgress begins to count the steps of a test.
func NewProgress(t *testing.T, total int) *Progress {
	return &Progress{test: t.Name(), total: total, began: time.Now(), reported: time.Now()}
}

// Step counts a step, and in a full run writes to stderr how many are done.
func (p *Progress) Step() {
	p.done++
	if now := time.Now(); *Full && (p.done == p.total || now.Sub(p.reported) >= every) {
		p.reported = now
		fmt.Fprintf(os.Stderr, "%s: %d of %d, %s\n", p.test, p.done, p.total, p.Elapsed().Round(time.Second))
	}
}

// Elapsed is the time since NewProgress.
func (p *Progress) Elapsed() time.Duration { return time.Since(p.began) }
