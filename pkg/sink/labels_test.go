package sink

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/occurrence"
)

// patched takes every create, and answers patches by a function.
type patched func(patch string) error

func (p patched) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	event.UID, event.ResourceVersion = "uid", "1"
	return event, nil
}

func (p patched) Patch(_ context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return &corev1.Event{}, p(string(patch))
}

func labelled(o *occurrence.Occurrence) { o.Event.Labels = map[string]string{"l": "m"} }

// An occurrence that is refused with and without its labels takes away nobody
// else's.
func TestOnlyWhatWasRefusedIsWrittenWithoutLabels(t *testing.T) {
	var patches []string
	c := patched(func(patch string) error {
		if patches = append(patches, patch); len(patches) <= 2 {
			return apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, "e", nil)
		}
		return nil
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		for range 3 {
			b.record(0, labelled)
			b.Flush(t.Context())
		}
		if n := len(patches); n != 3 || !strings.Contains(patches[n-1], `"labels":{"l":"m"}`) {
			t.Errorf("patched with %q", patches)
		}
	})
}
