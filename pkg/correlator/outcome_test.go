package correlator_test

import corev1 "k8s.io/api/core/v1"

// place identifies an Event by client-go's keys, so that it is comparable on both sides.
type place struct {
	group  string
	series string // "" for the combined Event of the group
}

func (p place) combined() bool { return p.series == "" }

// placeOf returns the place where an occurrence is counted. client-go ignores the reporter
// when it counts, though not when it groups (difference 6).
func placeOf(k keys, e *corev1.Event, combined bool) place {
	anybodys := *e
	anybodys.ReportingController, anybodys.ReportingInstance = "", ""
	group, _ := k.clientGoGroup(&anybodys)
	if combined {
		return place{group: group}
	}
	return place{group: group, series: k.clientGoSeries(&anybodys)}
}

// outcome has the stored counts and the writes of one side.
type outcome struct {
	counts map[place]int64
	writes map[place]int
	// refused is the number of occurrences that client-go's budget refused, by group.
	refused map[string]int
	// subjectWrites are the writes by subject, with the keys of that side.
	subjectWrites map[string]int
}

func newOutcome() *outcome {
	return &outcome{
		counts: map[place]int64{}, writes: map[place]int{},
		refused: map[string]int{}, subjectWrites: map[string]int{},
	}
}

// in sums over some places.
func (o *outcome) in(places []place) (count int64, writes int) {
	for _, p := range places {
		count += o.counts[p]
		writes += o.writes[p]
	}
	return count, writes
}
