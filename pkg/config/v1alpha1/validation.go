package v1alpha1

import (
	"fmt"
	"path/filepath"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits on what the file may have. Each receiver has its own queue and cursor, and each report of a
// client may evaluate every intake rule, each delivery every route.
const (
	// MaxReceivers is the maximum number of receivers.
	MaxReceivers = 16

	maxIntake    = 64
	maxRoutes    = 256
	maxHeaders   = 16
	maxRedacted  = 64
	maxBatchSize = 10_000
	minTimeout   = 100 * time.Millisecond
	maxTimeout   = 5 * time.Minute
)

func (c *EventdConfiguration) validate() field.ErrorList {
	errs := validateIntake(c.Intake, field.NewPath("intake"))
	receivers := field.NewPath("receivers")
	if len(c.Receivers) > MaxReceivers {
		errs = append(errs, field.TooMany(receivers, len(c.Receivers), MaxReceivers))
	}
	names, files := sets.New[string](), sets.New[string]()
	for i := range c.Receivers {
		r, path := &c.Receivers[i], receivers.Index(i)
		errs = append(errs, validateName(r.Name, names, path.Child("name"))...)
		errs = append(errs, r.validate(path)...)
		if r.JSONLines != nil {
			file := r.JSONLines.Path
			if absolute, err := filepath.Abs(file); err == nil && file != "" { // stdout
				file = absolute
			}
			errs = append(errs, addUnique(file, files, path.Child("jsonLines", "path"))...)
		}
	}
	routes := field.NewPath("routes")
	if len(c.Routes) > maxRoutes {
		errs = append(errs, field.TooMany(routes, len(c.Routes), maxRoutes))
	}
	routeNames := sets.New[string]()
	for i := range c.Routes {
		r, path := &c.Routes[i], routes.Index(i)
		errs = append(errs, validateName(r.Name, routeNames, path.Child("name"))...)
		errs = append(errs, r.validate(names, path.Child("receivers"))...)
		if r.Throttle != nil {
			errs = append(errs, r.Throttle.validate(path.Child("throttle"))...)
		}
	}
	return append(errs, c.validateMetrics(field.NewPath("metrics"))...)
}

// validateName checks a name, and adds it to those that are taken.
func validateName(name string, taken sets.Set[string], path *field.Path) field.ErrorList {
	if name == "" {
		return field.ErrorList{field.Required(path, "")}
	}
	errs := addUnique(name, taken, path)
	for _, message := range validation.IsDNS1123Label(name) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}

func addUnique(value string, taken sets.Set[string], path *field.Path) field.ErrorList {
	if taken.Has(value) {
		return field.ErrorList{field.Duplicate(path, value)}
	}
	taken.Insert(value)
	return nil
}

func (r *Route) validate(known sets.Set[string], path *field.Path) (errs field.ErrorList) {
	named := sets.New[string]()
	for i, name := range r.Receivers {
		errs = append(errs, addUnique(name, named, path.Index(i))...)
		if !known.Has(name) {
			errs = append(errs, field.NotFound(path.Index(i), name))
		}
	}
	return errs
}

func (r *Receiver) validate(path *field.Path) (errs field.ErrorList) {
	if r.From != FromNow && r.From != FromOldest {
		errs = append(errs, field.NotSupported(path.Child("from"), r.From, []StartFrom{FromNow, FromOldest}))
	}
	if len(r.Redact) > maxRedacted {
		errs = append(errs, field.TooMany(path.Child("redact"), len(r.Redact), maxRedacted))
	}
	redacted := sets.New[string]()
	for i, name := range r.Redact {
		errs = append(errs, addUnique(name, redacted, path.Child("redact").Index(i))...)
		errs = append(errs, validateField(name, RedactableFields(), path.Child("redact").Index(i))...)
	}
	errs = append(errs, validateRange(int64(*r.BatchSize), 1, maxBatchSize, path.Child("batchSize"))...)
	if t := r.Timeout.Duration; t < minTimeout || t > maxTimeout {
		errs = append(errs, field.Invalid(path.Child("timeout"), t.String(), fmt.Sprintf("must be from %s to %s", minTimeout, maxTimeout)))
	}
	return append(errs, r.validateDestination(path)...)
}

func validateRange(value, from, to int64, path *field.Path) field.ErrorList {
	if value < from || value > to {
		return field.ErrorList{field.Invalid(path, value, validation.InclusiveRangeError(int(from), int(to)))}
	}
	return nil
}

// validateDestination checks that there is one, and each that there is.
func (r *Receiver) validateDestination(path *field.Path) (errs field.ErrorList) {
	count := 0
	if r.OTLP != nil {
		count++
		errs = append(errs, r.OTLP.validate(path.Child("otlp"))...)
	}
	if r.CloudEvents != nil {
		count++
		errs = append(errs, r.CloudEvents.validate(path.Child("cloudEvents"))...)
	}
	if r.JetStream != nil {
		count++
		errs = append(errs, r.JetStream.validate(path.Child("jetStream"))...)
	}
	if r.JSONLines != nil {
		count++
		errs = append(errs, r.JSONLines.validate(path.Child("jsonLines"))...)
	}
	switch {
	case count == 0:
		errs = append(errs, field.Required(path, "needs one of otlp, cloudEvents, jetStream and jsonLines"))
	case count > 1:
		errs = append(errs, field.Forbidden(path, "may have only one of otlp, cloudEvents, jetStream and jsonLines"))
	}
	return errs
}
