package main

import (
	"fmt"
	"time"
)

// plan is a stream of versions of some Events, over a time.
type plan struct {
	versions, events int
	over             time.Duration
}

// patched is how many Events are patched: the last ones that were created.
const patched = 100

func (p plan) String() string {
	return fmt.Sprintf("%d versions of %d Events in %s", p.versions, p.events, p.over)
}

// order is the order of the versions: creates are spread evenly among the patches.
func (p plan) order() []version {
	order := make([]version, 0, p.versions)
	last := make([]int, p.events+1) // versions so far, by Event
	created := 0
	for i := range p.versions {
		event := created - i%max(1, min(patched, created))
		if (i+1)*p.events > created*p.versions {
			created++
			event = created
		}
		last[event]++
		order = append(order, version{event, last[event]})
	}
	return order
}
