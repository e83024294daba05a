package sink

import (
	"testing"
	"time"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/test/testenv"
)

// A strategic merge patch reads keys that begin with a dollar sign as directives.
// What a reporter says must not be one: the apiserver would refuse the same key
// in a create.
func TestAnnotationsAreNoDirectivesOfAPatch(t *testing.T) {
	for name, directive := range map[string]string{"that takes ours away": "delete", "that replaces ours": "replace", "of no meaning": "nonsense"} {
		t.Run(name, func(t *testing.T) {
			namespace := testenv.Shared(t).Namespace(t)
			o := unlimited()
			o.RetryFor = time.Second
			b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), o)
			for range 4 {
				b.record(0, func(o *occurrence.Occurrence) { o.Event.Annotations = map[string]string{"$patch": directive} })
				b.Flush(t.Context())
			}
			if got := b.close(); got.Written() != 4 {
				t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
			}
			wantStored(t, namespace, 1, 4)
			for _, e := range stored(t, namespace) {
				if e.Annotations[identity.Annotation] == "" || e.Annotations[sharesAnnotation] == "" {
					t.Errorf("%s has lost our annotations: %v", e.Name, e.Annotations)
				}
			}
		})
	}
}
