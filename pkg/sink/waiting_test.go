package sink

import (
	"context"
	"testing"
	"testing/synctest"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/occurrence"
)

// A client is told what is known of its namespace at once, also if its series
// already waits to be asked for.
func TestClientOfASeriesThatWaitsForItsNamespaceIsAnswered(t *testing.T) {
	bubble(t, scripted(func(context.Context, verb) (*corev1.Event, error) { return nil, missing("ns") }), nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait() // what is known from here on
		b.record(1)
		synctest.Wait() // waits until it is time to ask again
		answered := false
		b.record(1, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { answered = true } })
		synctest.Wait()
		if !answered {
			t.Error("it has to wait")
		}
		b.Flush(t.Context())
	})
}
