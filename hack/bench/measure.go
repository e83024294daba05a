package main

import (
	"cmp"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

// The turns of each side, and the minimum time of one. They are short, so that both
// sides of a turn have the same load of the machine beside them.
const (
	turns = 25
	turn  = "50ms"
)

// comparison is one piece of work, done by client-go and by eventd.
type comparison struct {
	work             string
	clientGo, eventd func(*testing.B)
	// occurrences of one operation of the benchmarks.
	occurrences int
	// goal is 0 if there is none.
	goal goal
}

// goal is what the ratio of the times and the number of allocations must not
// exceed.
type goal struct {
	ratio  float64
	allocs int64
}

// cost of one occurrence.
type cost struct {
	ns            float64
	bytes, allocs int64
}

// row is a comparison with its outcome: medians over the turns. The ratio is not
// that of the medians, but the median of the turns' own ratios.
type row struct {
	comparison
	clientGo, eventd cost
	ratio            float64
}

func (r row) reached() bool { return r.ratio <= r.goal.ratio && r.eventd.allocs <= r.goal.allocs }

// measure does those comparisons that have only in their names.
func measure(comparisons []comparison, only string) ([]row, error) {
	if err := flag.Set("test.benchtime", turn); err != nil {
		return nil, err
	}
	var rows []row
	for _, c := range comparisons {
		if !strings.Contains(c.work, only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "• %s\n", c.work)
		r, err := c.measure()
		if err != nil {
			return rows, err
		}
		rows = append(rows, r)
	}
	return rows, nil
}

func (c comparison) measure() (row, error) {
	var clientGo, eventd []cost
	var ratios []float64
	for range turns {
		a, b := testing.Benchmark(c.clientGo), testing.Benchmark(c.eventd)
		if a.N == 0 || b.N == 0 {
			return row{}, fmt.Errorf("%q failed", c.work)
		}
		theirs, ours := costOf(a, c.occurrences), costOf(b, c.occurrences)
		clientGo, eventd = append(clientGo, theirs), append(eventd, ours)
		ratios = append(ratios, ours.ns/theirs.ns)
	}
	slices.Sort(ratios)
	return row{comparison: c, clientGo: median(clientGo), eventd: median(eventd), ratio: ratios[turns/2]}, nil
}

func costOf(r testing.BenchmarkResult, occurrences int) cost {
	return cost{
		ns:     float64(r.NsPerOp()) / float64(occurrences),
		bytes:  r.AllocedBytesPerOp() / int64(occurrences),
		allocs: r.AllocsPerOp() / int64(occurrences),
	}
}

// median is that of the times; what a turn allocated goes with its time.
func median(costs []cost) cost {
	slices.SortFunc(costs, func(a, b cost) int { return cmp.Compare(a.ns, b.ns) })
	return costs[len(costs)/2]
}
