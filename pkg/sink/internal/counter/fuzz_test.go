package counter

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// FuzzObserve reads anything from a stored Event: what is not of this series is
// not marked as its Event, and what is read is written again as it was.
func FuzzObserve(f *testing.F) {
	own := occurrence.Digest(identity.Of(sinktest.Event(false))).String()
	f.Add(own, "v1;s="+sinkA+":1;n="+sinkB+":2", int32(3), true)
	f.Add(own, "v1;s="+sinkA+":18446744073709551615", int32(-1), false)
	f.Add("", "", int32(0), false)
	f.Add("of another", "v1;s="+sinkA+":1", int32(1), false)
	f.Fuzz(func(t *testing.T, digest, annotation string, count int32, series bool) {
		event := sinktest.Event(false)
		a := &Counter{digest: identity.Of(event)}
		event.Count = count
		if series {
			event.Series = &corev1.EventSeries{Count: count}
		}
		event.Annotations = map[string]string{identity.Annotation: digest, Annotation: annotation}
		o, marked := a.observe(event)
		parsed, err := parseContributors(annotation)
		if marked != (digest == own && err == nil) {
			t.Errorf("marked is %t: %q, %v", marked, digest, err)
		}
		if marked && o.contributors.String() != parsed.String() {
			t.Errorf("%q is read as %q", annotation, o.contributors)
		}
	})
}
