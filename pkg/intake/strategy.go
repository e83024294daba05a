package intake

import (
	"context"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/operation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// strategy has the rules of Events for the apiserver's generic create and update. It has
// no state.
type strategy struct {
	runtime.ObjectTyper
	api occurrence.API
}

var (
	_ rest.RESTCreateStrategy = strategy{}
	_ rest.RESTUpdateStrategy = strategy{}

	_ rest.DeclarativeValidationStrategy = strategy{}
)

const (
	// generatedLength is the number of random characters in a generated name. The apiserver has 5,
	// and generates another name if there is an object of that name. Here, no process knows all
	// names: a second report under one is taken for a retry of the first, and is not counted.
	generatedLength = 12
	// maxGeneratedName is the maximum length of a generated name, as in the apiserver.
	maxGeneratedName = 63
)

// GenerateName implements names.NameGenerator.
func (strategy) GenerateName(base string) string {
	return base[:min(len(base), maxGeneratedName-generatedLength)] + utilrand.String(generatedLength)
}

func (strategy) NamespaceScoped() bool                         { return true }
func (strategy) AllowCreateOnUpdate(context.Context) bool      { return true }
func (strategy) AllowUnconditionalUpdate(context.Context) bool { return true }

func (strategy) PrepareForCreate(_ context.Context, obj runtime.Object) { prepare(obj) }

func (strategy) PrepareForUpdate(_ context.Context, obj, _ runtime.Object) { prepare(obj) }

// prepare removes fields that the client copied from a response, and those that the
// field manager would replace.
func prepare(obj runtime.Object) {
	event := obj.(*corev1.Event)
	event.TypeMeta = metav1.TypeMeta{}
	event.ManagedFields = nil
	event.SetSelfLink("")
}

func (s strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	return validateCreate(obj.(*corev1.Event), s.api)
}

func (s strategy) ValidateUpdate(_ context.Context, obj, old runtime.Object) field.ErrorList {
	return validateUpdate(obj.(*corev1.Event), old.(*corev1.Event), s.api)
}

// ValidateDeclaratively returns each error once, as in the apiserver: several rules may be about one field.
func (strategy) ValidateDeclaratively(_ context.Context, _, _ runtime.Object, errs field.ErrorList, _ operation.Type, _ rest.DeclarativeValidationConfig) field.ErrorList {
	return errs.Filter()
}

func (strategy) DeclarativeValidationConfig(context.Context, runtime.Object, runtime.Object) rest.DeclarativeValidationConfig {
	return rest.DeclarativeValidationConfig{}
}

func (strategy) WarningsOnCreate(_ context.Context, _ runtime.Object) []string    { return nil }
func (strategy) WarningsOnUpdate(_ context.Context, _, _ runtime.Object) []string { return nil }

// Canonicalize removes eventd's own annotations. It runs after validation, so that a
// malformed one is an error.
func (strategy) Canonicalize(obj runtime.Object) {
	event := obj.(*corev1.Event)
	maps.DeleteFunc(event.Annotations, func(key, _ string) bool {
		return strings.HasPrefix(key, identity.AnnotationPrefix)
	})
	if len(event.Annotations) == 0 {
		event.Annotations = nil
	}
}
