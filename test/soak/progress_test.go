package soak

import (
	"fmt"
	"os"
	"testing"
	"time"
)

// progressEvery is how often a run in full says how far it is.
const progressEvery = 15 * time.Second

// progress of one test; whoever uses it guards it.
type progress struct {
	test        string
	done, total int
	began, said time.Time
}

func startProgress(t *testing.T, total int) *progress {
	return &progress{test: t.Name(), total: total, began: time.Now(), said: time.Now()}
}

// step is called after each of the parts.
func (p *progress) step() {
	p.done++
	if now := time.Now(); *inFull && (p.done == p.total || now.Sub(p.said) >= progressEvery) {
		p.said = now
		fmt.Fprintf(os.Stderr, "%s: %d of %d, %s\n", p.test, p.done, p.total, now.Sub(p.began).Round(time.Second))
	}
}
