package v1alpha1

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxSeries is the maximum number of series of all metrics together.
	MaxSeries = 8000

	maxMetrics    = 64
	maxLabels     = 8
	maxMetricName = 100
	maxHelp       = 1024
	maxBy         = 8
	minInterval   = time.Second
	maxInterval   = 24 * time.Hour
)

// metricName is the form of names of metrics and labels.
var metricName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// reservedLabels have a meaning in histograms and summaries, or are set by Prometheus when it scrapes.
var reservedLabels = []string{"le", "quantile", "job", "instance"}

func (c *EventdConfiguration) validateMetrics(path *field.Path) (errs field.ErrorList) {
	if len(c.Metrics) > maxMetrics {
		errs = append(errs, field.TooMany(path, len(c.Metrics), maxMetrics))
	}
	names, series := sets.New[string](), int64(0)
	for i := range c.Metrics {
		m := &c.Metrics[i]
		errs = append(errs, m.validate(names, path.Index(i))...)
		series += int64(*m.MaxSeries)
	}
	if series > MaxSeries {
		errs = append(errs, field.Invalid(path, series, fmt.Sprintf("maxSeries of all metrics must be at most %d together", MaxSeries)))
	}
	return errs
}

func (m *Metric) validate(names sets.Set[string], path *field.Path) (errs field.ErrorList) {
	errs = append(errs, validateMetricName(m.Name, path.Child("name"))...)
	if m.Name != "" {
		errs = append(errs, addUnique(m.Name, names, path.Child("name"))...)
	}
	if strings.HasSuffix(m.Name, "_total") {
		errs = append(errs, field.Invalid(path.Child("name"), m.Name, "must not end in _total, which is added"))
	}
	if len(m.Help) > maxHelp { // it is UTF-8, as all of the file
		errs = append(errs, field.TooLong(path.Child("help"), "", maxHelp))
	}
	labels := path.Child("labels")
	if len(m.Labels) > maxLabels {
		errs = append(errs, field.TooMany(labels, len(m.Labels), maxLabels))
	}
	for _, name := range slices.Sorted(maps.Keys(m.Labels)) {
		errs = append(errs, validateMetricName(name, labels.Key(name))...)
		if strings.HasPrefix(name, "__") || slices.Contains(reservedLabels, name) {
			errs = append(errs, field.Invalid(labels.Key(name), name, "is reserved"))
		}
		errs = append(errs, validateField(m.Labels[name], StringFields(), labels.Key(name))...)
	}
	return append(errs, validateRange(int64(*m.MaxSeries), 1, MaxSeries, path.Child("maxSeries"))...)
}

func validateMetricName(name string, path *field.Path) field.ErrorList {
	switch {
	case name == "":
		return field.ErrorList{field.Required(path, "")}
	case len(name) > maxMetricName:
		return field.ErrorList{field.TooLong(path, "", maxMetricName)}
	case !metricName.MatchString(name):
		return field.ErrorList{field.Invalid(path, name, validation.RegexError("must be the name of a metric or label", metricName.String(), "oom_kills"))}
	default:
		return nil
	}
}

func (t *Throttle) validate(path *field.Path) (errs field.ErrorList) {
	switch {
	case t.Interval == nil:
		errs = append(errs, field.Required(path.Child("interval"), ""))
	case t.Interval.Duration < minInterval || t.Interval.Duration > maxInterval:
		errs = append(errs, field.Invalid(path.Child("interval"), t.Interval.Duration.String(), fmt.Sprintf("must be from %s to %s", minInterval, maxInterval)))
	}
	if len(t.By) > maxBy {
		errs = append(errs, field.TooMany(path.Child("by"), len(t.By), maxBy))
	}
	named := sets.New[string]()
	for i, name := range t.By {
		errs = append(errs, addUnique(name, named, path.Child("by").Index(i))...)
		errs = append(errs, validateField(name, StringFields(), path.Child("by").Index(i))...)
	}
	return errs
}
