package v1alpha1

import (
	"errors"
	"fmt"
	"time"

	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"github.com/eventd/eventd/internal/documents"
)

// MaxBytes is the maximum size of the file.
const MaxBytes = 1 << 20

// Load decodes the content of a file, YAML or JSON, sets the defaults and validates the result.
// Fields that are unknown or given twice are errors. An error that is a utilerrors.Aggregate has
// one error per field. The expressions of routes are not compiled: package rules does that.
func Load(data []byte) (*EventdConfiguration, error) {
	if len(data) > MaxBytes {
		return nil, fmt.Errorf("the file has more than %d bytes", MaxBytes)
	}
	split, err := documents.Split(data)
	switch {
	case err != nil:
		return nil, err
	case len(split) == 0:
		return nil, errors.New("the file is empty")
	case len(split) > 1:
		return nil, errors.New("the file has more than one document")
	}
	config := new(EventdConfiguration)
	if err := decode(split[0], config); err != nil {
		return nil, err
	}
	config.setDefaults()
	if err := aggregate(config.validate()); err != nil {
		return nil, err
	}
	return config, nil
}

// maxErrors limits the errors about one file, whose text takes time that grows with the square of their
// number: hours for one that is full of empty items.
const maxErrors = 100

func aggregate(errs field.ErrorList) error {
	if len(errs) <= maxErrors {
		return errs.ToAggregate()
	}
	first := errs[:maxErrors].ToAggregate().Errors()
	return utilerrors.NewAggregate(append(first, fmt.Errorf("and %d more errors", len(errs)-maxErrors)))
}

func decode(document []byte, config *EventdConfiguration) error {
	// The kind comes first: the fields of another one are all unknown.
	var kind struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := kjson.UnmarshalCaseSensitivePreserveInts(document, &kind); err != nil {
		return err
	}
	if kind.APIVersion == "v1" && kind.Kind == "ConfigMap" {
		return errors.New(`the file is a ConfigMap: check what is in it, kubectl patch --local -f FILE -p '{}' -o 'jsonpath={.data.configuration\.yaml}' | eventd config check -, with the same --role`)
	}
	var errs field.ErrorList
	if kind.APIVersion != APIVersion {
		errs = append(errs, field.NotSupported(field.NewPath("apiVersion"), kind.APIVersion, []string{APIVersion}))
	}
	if kind.Kind != Kind {
		errs = append(errs, field.NotSupported(field.NewPath("kind"), kind.Kind, []string{Kind}))
	}
	if len(errs) > 0 {
		return errs.ToAggregate()
	}
	strict, err := kjson.UnmarshalStrict(document, config)
	if err != nil {
		return locateDuration(document, err)
	}
	return utilerrors.NewAggregate(strict)
}

// locateDuration returns the error of the first timeout or interval that is no duration, or else
// err. metav1.Duration does not know its path.
func locateDuration(document []byte, err error) error {
	var config struct {
		Receivers []struct {
			Timeout any `json:"timeout"`
		} `json:"receivers"`
		Routes []struct {
			Throttle struct {
				Interval any `json:"interval"`
			} `json:"throttle"`
		} `json:"routes"`
	}
	if kjson.UnmarshalCaseSensitivePreserveInts(document, &config) != nil {
		return err
	}
	for i, receiver := range config.Receivers {
		if !isDuration(receiver.Timeout) {
			return field.Invalid(field.NewPath("receivers").Index(i).Child("timeout"), receiver.Timeout, "must be a duration such as 10s")
		}
	}
	for i, route := range config.Routes {
		if interval := route.Throttle.Interval; !isDuration(interval) {
			return field.Invalid(field.NewPath("routes").Index(i).Child("throttle", "interval"), interval, "must be a duration such as 5m")
		}
	}
	return err
}

// isDuration reports whether a value is a duration, or not set.
func isDuration(value any) bool {
	text, isString := value.(string)
	_, err := time.ParseDuration(text)
	return value == nil || isString && err == nil
}
