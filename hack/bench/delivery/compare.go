package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"
)

// contestant is a side with its name.
type contestant struct {
	name  string
	start start
	kind  kind
}

// kind is what a contestant is compared as.
type kind int

const (
	ours kind = iota
	batched
	unbatched
)

// fourThousand is the stream of a comparison.
var fourThousand = plan{versions: 18_000, events: 4156, over: time.Minute}

const kills = 10

// contestants deliver as long as nothing happens to them.
func contestants() []contestant {
	return []contestant{
		{"eventd", startEventd(1), ours},
		{"k8s_events, batch", startCollector(k8sEvents, true), batched},
		{"k8sobjects, batch", startCollector(k8sObjects, true), batched},
		{"k8s_events", startCollector(k8sEvents, false), unbatched},
		{"k8sobjects", startCollector(k8sObjects, false), unbatched},
	}
}

// victims are killed.
func victims() []contestant {
	return []contestant{
		{"eventd, 3 replicas", startEventd(3), ours},
		{"k8s_events, batch", startCollector(k8sEvents, true), batched},
		{"k8sobjects, batch", startCollector(k8sObjects, true), batched},
	}
}

// entry is a row of the comparison.
type entry struct {
	contestant
	result
	kills int
}

// compare has all of them deliver the same stream, turn by turn. Every other turn is in reverse.
func compare(ctx context.Context, w io.Writer, turns int) error {
	if *collectorBinary == "" {
		return errors.New("-collector must be set, or EVENTD_COLLECTOR")
	}
	var entries []entry
	defer func() { // also after an error
		if len(entries) > 0 {
			writeComparison(w, entries)
		}
	}()
	for turn := range turns {
		for _, part := range []struct {
			of    []contestant
			kills int
		}{{contestants(), 0}, {victims(), kills}} {
			if turn%2 == 1 {
				slices.Reverse(part.of)
			}
			for _, c := range part.of {
				note("%s, %d kills", c.name, part.kills)
				r, err := run{fourThousand, part.kills}.do(ctx, c.start)
				if err != nil {
					return fmt.Errorf("%s: %w", c.name, err)
				}
				entries = append(entries, entry{c, r, part.kills})
			}
		}
	}
	return nil
}

// aim is a goal, and what eventd has reached of it.
type aim struct {
	what         string
	eventd, most float64
	unit         string
}

func (a aim) String() string {
	verdict := "NOT REACHED"
	if a.eventd <= a.most {
		verdict = "reached"
	}
	return fmt.Sprintf("%s: %.1f%s of at most %.1f%[3]s, %[5]s", a.what, a.eventd, a.unit, a.most, verdict)
}

// aims compare eventd with the others of the same command.
func aims(entries []entry) []aim {
	missing := 0
	for _, e := range entries {
		if e.kind == ours {
			missing += e.missing
		}
	}
	cpu := func(e entry) float64 { return e.perTenThousand().Seconds() }
	p50 := func(e entry) float64 { return e.percentile(50).Seconds() * 1000 }
	return []aim{
		{"missing with eventd, with and without kills", float64(missing), 0, ""},
		{"CPU per 10,000, beside theirs with batches", median(entries, ours, cpu), median(entries, batched, cpu), " s"},
		{"p50, beside theirs without batches", median(entries, ours, p50), median(entries, unbatched, p50), " ms"},
	}
}

// median is that of a kind, without kills.
func median(entries []entry, of kind, figure func(entry) float64) float64 {
	var figures []float64
	for _, e := range entries {
		if e.kind == of && e.kills == 0 {
			figures = append(figures, figure(e))
		}
	}
	if len(figures) == 0 {
		return 0
	}
	slices.Sort(figures)
	return (figures[(len(figures)-1)/2] + figures[len(figures)/2]) / 2
}
