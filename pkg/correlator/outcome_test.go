package correlator_test

import (
	corev1 "k8s.io/api/core/v1"
)

// place is an Event on which occurrences are counted, as far as client-go can
// tell Events apart, so that the same place can be found on both sides.
type place struct {
	group  string
	series string // "" for the combined Event of the group
}

func (p place) combined() bool { return p.series == "" }

// placeOf is where an occurrence is counted.
func placeOf(k keys, e *corev1.Event, combined bool) place {
	e = withoutReporter(e)
	group, _ := k.clientGoGroup(e)
	if combined {
		return place{group: group}
	}
	return place{group: group, series: k.clientGoSeries(e)}
}

// withoutReporter is what is left of the difference 6: client-go counts
// occurrences of several reporters on one Event, though it groups them apart. So
// both are looked at without reporters.
func withoutReporter(e *corev1.Event) *corev1.Event {
	if e.ReportingController == "" && e.ReportingInstance == "" {
		return e
	}
	c := *e
	c.ReportingController, c.ReportingInstance = "", ""
	return &c
}

// outcome is what has been stored in the end, and what it took.
type outcome struct {
	counts map[place]int64
	writes map[place]int
	// refused is the number of occurrences of a group that client-go's budget
	// refused.
	refused map[string]int
	// subjectWrites are by subject, as that side tells subjects apart.
	subjectWrites map[string]int
}

func newOutcome() *outcome {
	return &outcome{
		counts: map[place]int64{}, writes: map[place]int{},
		refused: map[string]int{}, subjectWrites: map[string]int{},
	}
}

// groups returns the places of every group.
func (o *outcome) groups() map[string][]place {
	out := map[string][]place{}
	for p := range o.counts {
		out[p.group] = append(out[p.group], p)
	}
	return out
}

// in sums over the places of a group.
func (o *outcome) in(places []place) (count int64, writes int) {
	for _, p := range places {
		count += o.counts[p]
		writes += o.writes[p]
	}
	return count, writes
}
