package v1alpha1

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// RedactableFields returns the fields that a receiver can go without, in the names of match
// expressions. The rest identifies a version, or orders it: metadata.uid, times and counts.
func RedactableFields() []string {
	return []string{
		"metadata.name", "metadata.namespace", "metadata.labels", "metadata.annotations",
		"involvedObject", "involvedObject.kind", "involvedObject.namespace", "involvedObject.name",
		"involvedObject.uid", "involvedObject.apiVersion", "involvedObject.fieldPath",
		"related", "related.kind", "related.namespace", "related.name",
		"related.uid", "related.apiVersion", "related.fieldPath",
		"reason", "message", "type", "action", "reportingComponent", "reportingInstance",
	}
}

// RedactedKey splits a field that is a key of a map, such as
// metadata.annotations["example.com/key"], into the map and the key. The key is empty in other
// fields.
func RedactedKey(name string) (of, key string) {
	of, rest, found := strings.Cut(name, `["`)
	if key, closed := strings.CutSuffix(rest, `"]`); found && closed {
		return of, key
	}
	return name, ""
}

// StringFields returns the fields that are one string. A single key of labels or annotations is one
// more.
func StringFields() []string {
	return append([]string{"metadata.uid"}, slices.DeleteFunc(RedactableFields(), func(name string) bool {
		return name == "metadata.labels" || name == "metadata.annotations" || name == "involvedObject" || name == "related"
	})...)
}

// validateField checks that a field is known, or a key of labels or annotations.
func validateField(name string, known []string, path *field.Path) field.ErrorList {
	of, key := RedactedKey(name)
	if key == "" {
		if slices.Contains(known, name) {
			return nil
		}
		return field.ErrorList{field.NotSupported(path, name, known)}
	}
	if of != "metadata.labels" && of != "metadata.annotations" {
		return field.ErrorList{field.Invalid(path, name, "only metadata.labels and metadata.annotations have keys")}
	}
	var errs field.ErrorList
	for _, message := range validation.IsQualifiedName(key) {
		errs = append(errs, field.Invalid(path, name, message))
	}
	return errs
}
