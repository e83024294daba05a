package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// outcome is a row of the second table: what came of eventd's turns, and of those
// of what it is put beside.
type outcome struct {
	work   string
	unit   unit
	eventd figures
	beside string // "" if there is nothing
	other  figures
	aim    *aim // nil if there is none
}

// aim is what an outcome must be.
type aim struct {
	text    string
	reached func(outcome) bool
}

// ofOther is reached if eventd's median turn comes to that part of the other's.
func ofOther(part float64) *aim {
	return &aim{fmt.Sprintf("≥ %.0f %% of it", 100*part), func(o outcome) bool { return o.ratios().median() >= part }}
}

// atMostOfOther is reached if eventd's median turn is no more than that part of the
// other's.
func atMostOfOther(part float64) *aim {
	return &aim{fmt.Sprintf("≤ %.0f %% of it", 100*part), func(o outcome) bool { return o.ratios().median() <= part }}
}

// atMost is reached by every turn, or not at all.
func atMost(v float64, u unit) *aim {
	return &aim{"≤ " + u(v), func(o outcome) bool { return slices.Max(o.eventd) <= v }}
}

// atLeast is reached by every turn, or not at all.
func atLeast(v float64, u unit) *aim {
	return &aim{"≥ " + u(v), func(o outcome) bool { return slices.Min(o.eventd) >= v }}
}

// below is reached by the median turn.
func below(v float64, u unit) *aim {
	return &aim{"< " + u(v), func(o outcome) bool { return o.eventd.median() < v }}
}

// exactly is reached by every turn, or not at all.
func exactly(v float64, u unit) *aim {
	return &aim{u(v), func(o outcome) bool { return slices.Min(o.eventd) == v && slices.Max(o.eventd) == v }}
}

// ratios are of the same turns.
func (o outcome) ratios() figures {
	if o.other == nil {
		return nil
	}
	return o.eventd.over(o.other)
}

func (o outcome) verdict() string {
	switch {
	case o.aim == nil:
		return ""
	case o.aim.reached(o):
		return "reached"
	default:
		return "NOT REACHED"
	}
}

// writeOutcomes prints the table.
func writeOutcomes(w io.Writer, outcomes []outcome) {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	fmt.Fprintln(w, "Whole pipelines against a kube-apiserver on this machine; medians (and extremes) of the turns. eventd's own limit of requests per second is off.")
	fmt.Fprintln(w)
	fmt.Fprintln(out, "work\teventd\tbeside\t\tratio\tgoal\t")
	for _, o := range outcomes {
		goal := ""
		if o.aim != nil {
			goal = o.aim.text
		}
		fmt.Fprintf(out, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", o.work, o.eventd.write(o.unit),
			o.beside, o.other.write(o.unit), o.ratios().write(ratio), goal, o.verdict())
	}
	out.Flush()
}
