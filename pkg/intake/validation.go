package intake

import (
	"fmt"
	"reflect"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// The rules of kube-apiserver 1.37, pkg/apis/core/validation/events.go. Clients may rely
// on type, field and detail of every error. core/v1 is lenient, because Events were once
// not validated. events.k8s.io/v1 requires the new style for new Events, and allows only
// changes of series and metadata. Field names are those of core/v1 in both APIs, with
// one exception.
var (
	metadataPath            = field.NewPath("metadata")
	reportingControllerPath = field.NewPath("reportingController")
	reportingComponentPath  = field.NewPath("reportingComponent")
)

// validateCreate validates a new Event.
func validateCreate(event *corev1.Event, api occurrence.API) field.ErrorList {
	errs := validateContent(event, api)
	if api != occurrence.EventsV1 {
		return errs
	}
	if !isPlainMeta(&event.ObjectMeta) {
		errs = append(errs, apivalidation.ValidateObjectMeta(&event.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, metadataPath)...)
		errs = append(errs, validateFinalizers(event.Finalizers)...)
	}
	errs = append(errs, validateSeries(event.Series)...)
	if event.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	if event.Type != corev1.EventTypeNormal && event.Type != corev1.EventTypeWarning {
		errs = append(errs, field.Invalid(field.NewPath("type"), "", fmt.Sprintf("has invalid value: %v", event.Type)))
	}
	for _, deprecated := range []struct {
		name string
		set  bool
	}{
		// A zero time in the request is not unset for the apiserver.
		{"firstTimestamp", event.FirstTimestamp.Time != time.Time{}},
		{"lastTimestamp", event.LastTimestamp.Time != time.Time{}},
		{"count", event.Count != 0},
		{"source", event.Source != corev1.EventSource{}},
	} {
		if deprecated.set {
			errs = append(errs, field.Invalid(field.NewPath(deprecated.name), "", "needs to be unset"))
		}
	}
	return errs
}

// validateUpdate validates a change of an Event.
func validateUpdate(event, old *corev1.Event, api occurrence.API) field.ErrorList {
	errs := validateContent(event, api)
	if api != occurrence.EventsV1 {
		return errs
	}
	if !isSamePlainMeta(&event.ObjectMeta, &old.ObjectMeta) {
		errs = append(errs, apivalidation.ValidateObjectMetaUpdate(&event.ObjectMeta, &old.ObjectMeta, metadataPath)...)
		errs = append(errs, validateFinalizers(event.Finalizers)...)
	}
	if !reflect.DeepEqual(event.Series, old.Series) {
		errs = append(errs, validateSeries(event.Series)...)
	}
	immutable(&errs, "involvedObject", object(event.InvolvedObject), object(old.InvolvedObject))
	immutable(&errs, "reason", event.Reason, old.Reason)
	immutable(&errs, "message", event.Message, old.Message)
	immutable(&errs, "source", source(event.Source), source(old.Source))
	immutable(&errs, "firstTimestamp", event.FirstTimestamp, old.FirstTimestamp)
	immutable(&errs, "lastTimestamp", event.LastTimestamp, old.LastTimestamp)
	immutable(&errs, "count", event.Count, old.Count)
	immutable(&errs, "type", event.Type, old.Type)
	// Some clients truncate the time to microseconds.
	if !event.EventTime.Truncate(time.Microsecond).Equal(old.EventTime.Truncate(time.Microsecond)) {
		immutable(&errs, "eventTime", event.EventTime, old.EventTime)
	}
	immutable(&errs, "action", event.Action, old.Action)
	immutable(&errs, "related", (*object)(event.Related), (*object)(old.Related))
	immutable(&errs, "reportingController", event.ReportingController, old.ReportingController)
	immutable(&errs, "reportingInstance", event.ReportingInstance, old.ReportingInstance)
	return errs
}

// immutable appends the error of a field that has changed. Values that are not equal here may still be the same.
func immutable[T comparable](errs *field.ErrorList, name string, value, old T) {
	if value != old {
		*errs = append(*errs, apivalidation.ValidateImmutableField(value, old, field.NewPath(name))...)
	}
}

// isBareMeta reports whether metadata has nothing that the apiserver's handlers change, or warn about.
func isBareMeta(m *metav1.ObjectMeta) bool {
	return len(m.OwnerReferences)+len(m.Finalizers)+len(m.ManagedFields) == 0 && m.DeletionTimestamp == nil
}

// isPlainMeta reports whether metadata has only a name and a namespace, which are valid, beside what the system sets.
func isPlainMeta(m *metav1.ObjectMeta) bool {
	return isBareMeta(m) && len(m.Labels)+len(m.Annotations)+len(m.GenerateName) == 0 && m.Generation == 0 &&
		m.DeletionGracePeriodSeconds == nil && m.UID != "" &&
		len(validation.IsDNS1123Subdomain(m.Name)) == 0 && len(validation.IsDNS1123Label(m.Namespace)) == 0
}

// isSamePlainMeta reports whether an update leaves plain metadata as it was.
func isSamePlainMeta(m, old *metav1.ObjectMeta) bool {
	return isPlainMeta(m) && isPlainMeta(old) && m.Name == old.Name && m.Namespace == old.Namespace &&
		m.UID == old.UID && m.CreationTimestamp == old.CreationTimestamp && m.ResourceVersion != ""
}

// validateContent is for both APIs, for new Events and for changed ones.
func validateContent(event *corev1.Event, api occurrence.API) field.ErrorList {
	if event.EventTime.IsZero() {
		return validateClassic(event)
	}
	return validateNewStyle(event, api)
}

// validateClassic checks that an Event without eventTime is in the namespace of its
// object, or in default if that has none.
func validateClassic(event *corev1.Event) field.ErrorList {
	about := event.InvolvedObject.Namespace
	if about == event.Namespace {
		return nil
	}
	if about == metav1.NamespaceNone && event.Namespace == metav1.NamespaceDefault {
		return nil
	}
	return field.ErrorList{namespaceMismatch(about)}
}

// validateNewStyle checks an Event with eventTime.
func validateNewStyle(event *corev1.Event, api occurrence.API) field.ErrorList {
	var errs field.ErrorList
	if event.InvolvedObject.Namespace == metav1.NamespaceNone &&
		event.Namespace != metav1.NamespaceDefault && event.Namespace != metav1.NamespaceSystem {
		errs = append(errs, namespaceMismatch(event.InvolvedObject.Namespace))
	}
	controller := reportingControllerPath
	if api == occurrence.CoreV1 {
		controller = reportingComponentPath
	}
	if event.ReportingController == "" {
		errs = append(errs, field.Required(controller, ""))
	}
	for _, message := range validation.IsQualifiedName(event.ReportingController) {
		errs = append(errs, field.Invalid(controller, event.ReportingController, message))
	}
	for _, f := range []struct {
		name, value string
		required    bool
		limit       int
	}{
		{"reportingInstance", event.ReportingInstance, true, identity.MaxReportingInstance},
		{"action", event.Action, true, identity.MaxAction},
		{"reason", event.Reason, true, identity.MaxReason},
		{"message", event.Message, false, identity.MaxNote},
	} {
		if f.required && f.value == "" {
			errs = append(errs, field.Required(field.NewPath(f.name), ""))
		}
		if len(f.value) > f.limit {
			errs = append(errs, field.Invalid(field.NewPath(f.name), "", fmt.Sprintf("can have at most %v characters", f.limit)))
		}
	}
	return errs
}

func namespaceMismatch(about string) *field.Error {
	return field.Invalid(field.NewPath("involvedObject", "namespace"), about, "does not match event.namespace")
}

// validateSeries validates a new or changed series.
func validateSeries(series *corev1.EventSeries) field.ErrorList {
	if series == nil {
		return nil
	}
	var errs field.ErrorList
	if series.Count < 2 {
		errs = append(errs, field.Invalid(field.NewPath("series.count"), "", "should be at least 2"))
	}
	if series.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("series.lastObservedTime"), ""))
	}
	return errs
}

// validateFinalizers checks that a finalizer without a domain is one of those of
// Kubernetes itself, in addition to the rules of all metadata.
func validateFinalizers(finalizers []string) field.ErrorList {
	var errs field.ErrorList
	for i, name := range finalizers {
		switch name {
		case string(corev1.FinalizerKubernetes), metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents:
			continue
		}
		if !strings.Contains(name, "/") {
			errs = append(errs, field.Invalid(metadataPath.Child("finalizers").Index(i), name,
				"name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}

// object and source are formatted in errors as the apiserver's internal types are, with
// the names of their Go fields.
type (
	object struct {
		Kind            string
		Namespace       string
		Name            string
		UID             types.UID
		APIVersion      string
		ResourceVersion string
		FieldPath       string
	}
	source struct {
		Component string
		Host      string
	}
)
