package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// figure is a value of /metrics as it is shown. The page has Metric, Labels, Value and PerSecond as
// attributes, too.
type figure struct {
	Name, Metric, Labels, Value, PerSecond string
	// Text is the value, or the rate of a counter. Beside is the value of a counter.
	Text, Beside string
	// Sum: it is that of all series of the metric.
	Sum bool
}

// stations are the first words of names of metrics that a card says already.
var stations = []string{
	"occurrences_", "intake_rule_", "intake_", "relay_", "recorder_", "broadcaster_", "correlator_", "sink_", "observer_",
	"receiver_", "history_", "trail_", "election_", "route_", "metric_",
}

// newFigure derives the words from the name and the labels, so that a new metric needs none here.
func newFigure(f v1alpha1.Figure) *figure {
	out := &figure{Metric: f.Metric, Labels: labels(f.Labels), Value: exact(f.Value)}
	name := strings.TrimPrefix(f.Metric, "eventd_")
	for _, s := range stations {
		name = strings.TrimPrefix(name, s)
	}
	switch {
	case strings.HasSuffix(name, "_timestamp_seconds"):
		name = strings.TrimSuffix(name, "_timestamp_seconds")
		out.Text = "never"
		if f.Value > 0 {
			whole, fraction := math.Modf(f.Value)
			out.Text = clock(time.Unix(int64(whole), int64(fraction*1e9))).Text
		}
	case strings.HasSuffix(name, "_seconds"):
		name = strings.TrimSuffix(name, "_seconds")
		out.Text = duration(f.Value)
	case strings.Contains(name, "bytes"):
		name = strings.ReplaceAll(strings.ReplaceAll(name, "_bytes", ""), "capacity", "limit")
		out.Text = size(f.Value)
	default:
		name = strings.TrimSuffix(name, "_total")
		out.Text = count(f.Value)
	}
	if f.PerSecond != nil {
		out.Text, out.Beside, out.PerSecond = rate(*f.PerSecond), out.Text, exact(*f.PerSecond)
	}
	out.Name = strings.ReplaceAll(name, "_", " ")
	if values := strings.Join(labelValues(f.Labels), " "); values != "" {
		out.Name += ": " + strings.ReplaceAll(values, "_", " ")
	}
	return out
}

// shortCard is how many figures a card has before those that are shown when asked for.
const shortCard = 3

// against are words in names of counters of what does not pass.
var against = []string{"dropped", "refused", "failed", "failures", "retries", "panics", "aborted", "evict", "lost", "restarts", "gaps"}

// arrange divides the figures of a station: the sum of the first counter that says how much passes, the next
// figures that are not 0, the largest series of that counter first, and all others.
func arrange(all []v1alpha1.Figure) (lead *figure, short, more []*figure) {
	first := ""
	for _, f := range all {
		// Also before its rate is known, so that the card has the same parts.
		if first == "" && strings.HasSuffix(f.Metric, "_total") && !slices.ContainsFunc(against, func(w string) bool { return strings.Contains(f.Metric, w) }) {
			first = f.Metric
		}
	}
	var same, others []v1alpha1.Figure
	for _, f := range all {
		if f.Metric == first {
			same = append(same, f)
		} else {
			others = append(others, f)
		}
	}
	switch len(same) {
	case 0:
	case 1:
		lead = newFigure(same[0])
		same = nil
	default:
		lead = newFigure(total(same))
		lead.Sum = true
		slices.SortStableFunc(same, func(a, b v1alpha1.Figure) int { return cmp.Compare(b.Value, a.Value) })
	}
	for _, f := range append(same, others...) {
		out := newFigure(f)
		if _, values, ok := strings.Cut(out.Name, ": "); ok && f.Metric == first {
			out.Name = values // the lead has the rest
		}
		if f.Value != 0 && len(short) < shortCard {
			short = append(short, out)
		} else {
			more = append(more, out)
		}
	}
	return lead, short, more
}

// total adds the series of a counter up.
func total(all []v1alpha1.Figure) v1alpha1.Figure {
	rate, known := 0.0, false
	out := v1alpha1.Figure{Metric: all[0].Metric}
	for _, f := range all {
		out.Value += f.Value
		if f.PerSecond != nil {
			rate, known = rate+*f.PerSecond, true
		}
	}
	if known {
		out.PerSecond = &rate
	}
	return out
}

// exact is the value with all of its digits, as strconv.ParseFloat reads it.
func exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// labels are those of a series of /metrics, in its notation.
func labels(l map[string]string) string {
	var out []string
	for _, name := range slices.Sorted(maps.Keys(l)) {
		out = append(out, name+"="+strconv.Quote(l[name]))
	}
	return strings.Join(out, ",")
}

// labelValues leaves out those that are the same for all figures of a card.
func labelValues(l map[string]string) (out []string) {
	for _, name := range slices.Sorted(maps.Keys(l)) {
		if value := l[name]; value != "" && name != "receiver" && name != "subscriber" {
			out = append(out, value)
		}
	}
	return out
}

// bar is the picture of how full something is, in percent.
type bar struct {
	Percent string
	// Full is what needs attention.
	Full bool
	// Label says it in words.
	Label string
}

// nearlyFull is the part of a capacity from which a queue needs attention.
const nearlyFull = 0.8

// newBar returns nil if there is nothing to compare with.
func newBar(length, capacity float64, label string) *bar {
	part := length / capacity
	if math.IsNaN(part) || capacity <= 0 || math.IsInf(capacity, 0) {
		return nil
	}
	part = min(max(part, 0), 1)
	return &bar{Percent: strconv.FormatFloat(100*part, 'f', 1, 64), Full: part >= nearlyFull, Label: label}
}
