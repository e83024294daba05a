package intake_test

import (
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

func equal[T any](t testing.TB, what string, got, want T) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %+v, want %+v", what, got, want)
	}
}

// bubble runs a subtest in a bubble of synctest.
func bubble(t *testing.T, name string, test func(*testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { synctest.Test(t, test) })
}

// withOptions serves with other options of the intake.
func withOptions(set func(*intake.Options)) setting {
	return func(o *intake.Options, _ *intake.ServerOptions) { set(o) }
}

// withServer serves with other options of the server.
func withServer(set func(*intake.ServerOptions)) setting {
	return func(_ *intake.Options, o *intake.ServerOptions) { set(o) }
}

// pending sends a request, and returns when its occurrence is recorded.
func (s *server) pending(send func() answer) (<-chan answer, *occurrence.Occurrence) {
	answered := background(send)
	return answered, <-s.Pipeline.Recorded
}

// posting is pending for a POST of an Event.
func (s *server) posting(t testing.TB, name string, count int32) (<-chan answer, *occurrence.Occurrence) {
	t.Helper()
	return s.pending(func() answer { return s.Post(t, classic(name, count)) })
}

// patching is pending for a PATCH of the count.
func (s *server) patching(t testing.TB, name string, count int32) (<-chan answer, *occurrence.Occurrence) {
	t.Helper()
	return s.pending(func() answer { return s.Patch(t, name, `{"count":%d}`, count) })
}
