package main

import (
	"fmt"
	"io"
	"math"
	"runtime"
	"text/tabwriter"
)

// write prints the table; all figures are those of one occurrence.
func write(w io.Writer, rows []row) {
	fmt.Fprintf(w, "%s, %s/%s, %d CPUs; per occurrence\n\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, "work\tclient-go ns\tB\tallocs\teventd ns\tB\tallocs\teventd/client-go\tgoal\t\t")
	for _, r := range rows {
		fmt.Fprintf(out, "%s\t%.0f\t%d\t%d\t%.0f\t%d\t%d\t%s\t%s\t%s\t\n", r.work,
			r.clientGo.ns, r.clientGo.bytes, r.clientGo.allocs,
			r.eventd.ns, r.eventd.bytes, r.eventd.allocs,
			fraction(r.ratio), r.goal, verdict(r))
	}
	out.Flush()
}

func verdict(r row) string {
	switch {
	case r.goal == goal{}:
		return ""
	case r.reached():
		return "reached"
	default:
		return "NOT REACHED"
	}
}

func (g goal) String() string {
	if g == (goal{}) {
		return ""
	}
	return fmt.Sprintf("≤ %s, ≤ %d allocs", fraction(g.ratio), g.allocs)
}

// fraction writes small ratios as the goals are written.
func fraction(ratio float64) string {
	if ratio >= 0.5 {
		return fmt.Sprintf("%.2f", ratio)
	}
	// Rounded so that it is never better than what was measured.
	inverse := math.Floor(10/ratio*(1+1e-9)) / 10
	if inverse >= 10 || inverse == math.Trunc(inverse) {
		return fmt.Sprintf("1/%.0f", math.Floor(inverse))
	}
	return fmt.Sprintf("1/%.1f", inverse)
}
