package intake

import (
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/violations"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Options are the options of an Intake. Begin with DefaultOptions.
type Options struct {
	// Record adds an occurrence to the pipeline. It must not block. It may settle the
	// occurrence before it returns. Required.
	Record func(*occurrence.Occurrence)
	// Rules, if not nil, decides on each report before it is recorded, in the goroutine of the
	// request. It must not change the Event, which has the count that the client reports, and
	// has occurred weight times since its last report. If drop is not empty, the report is
	// filtered: it is counted by Filter, and answered as if it were deferred. Otherwise it has
	// the budget, nil for the usual one. dryRun may be nil. Otherwise it is to be called for each
	// rule in dry run that matches, with what the rule would do.
	Rules func(event *corev1.Event, weight int64, dryRun func(rule, action string)) (drop occurrence.Reason, budget *occurrence.Budget)
	// Filter counts an occurrence that a rule drops, and settles it as occurrence.Filtered with
	// the rule as the reason, before it returns. Required with Rules.
	Filter func(o *occurrence.Occurrence, rule occurrence.Reason)
	// DryRun, if not nil, is told of each rule in dry run that matches what an occurrence
	// reports, which is weight times, and what the rule would do. It must not block.
	DryRun func(o *occurrence.Occurrence, weight int64, rule, action string)
	// Registerer registers the metrics; nil leaves them unregistered.
	Registerer prometheus.Registerer
	// MaxBodyBytes is the maximum size of a request body. A larger one gets 413.
	MaxBodyBytes int64
	// MaxDecodeBytes limits the memory to decode bodies and to apply patches, in all
	// requests together, by an upper bound for each. A request that cannot reserve its
	// part within a second gets 429. One request may always be decoded.
	MaxDecodeBytes int64
	// MaxNames and MaxViewBytes limit the number of views and their memory. A view of a
	// usual Event takes 1 to 2 KiB, so 4,096 take about 8 MiB. The second limit is for
	// large Events, each of which counts as several names. A tenant that reaches its
	// share replaces its own views.
	MaxNames     int
	MaxViewBytes int64
	// MaxUnreadBytes limits the memory of all responses that are being written. One may have a third.
	MaxUnreadBytes int64
}

// DefaultOptions returns the defaults of a daemon, without Record.
func DefaultOptions() Options {
	return Options{
		MaxBodyBytes:   1 << 20,
		MaxDecodeBytes: 16 << 20,
		MaxNames:       4096,
		MaxViewBytes:   12 << 20,
		MaxUnreadBytes: DefaultMaxUnreadBytes,
	}
}

// Validate returns an error that names each invalid field.
func (o *Options) Validate() error {
	var v violations.List
	v.AddIf(o.Record == nil, "Record is required")
	v.AddIf(o.Rules != nil && o.Filter == nil, "Filter, with Rules, is required")
	for _, limit := range []struct {
		field string
		value int64
	}{
		{"MaxBodyBytes", o.MaxBodyBytes},
		{"MaxDecodeBytes", o.MaxDecodeBytes},
		{"MaxNames", int64(o.MaxNames)},
		{"MaxViewBytes", o.MaxViewBytes},
		{"MaxUnreadBytes", o.MaxUnreadBytes},
	} {
		v.AddIf(limit.value <= 0, "%s must be greater than 0, not %d", limit.field, limit.value)
	}
	return v.Err()
}
