package intake_test

import (
	"net/http"
	"net/http/httptest"
	"reflect"
	"testing"
	"testing/synctest"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
)

func TestMain(m *testing.M) { intaketest.Main(m) }

// server is an intake's handler with the methods of this package's tests.
type server struct{ *intaketest.Server }

type (
	answer       = intaketest.Answer
	fakePipeline = intaketest.Pipeline
	setting      = intaketest.Setting
	decision     = intaketest.Decision
)

const (
	coreEvents   = intaketest.CoreEvents
	newEvents    = intaketest.NewEvents
	newStyleJSON = intaketest.NewStyleJSON
	withoutToken = intaketest.WithoutToken
)

var (
	written    = intaketest.Written
	kept       = intaketest.Kept
	settled    = intaketest.Settled
	stored     = intaketest.Stored
	authorized = intaketest.Authorized
	classic    = intaketest.Classic
	newRequest = intaketest.NewRequest
	background = intaketest.Background[answer]
	until      = await.Until
)

func serve(t testing.TB, p *fakePipeline, settings ...setting) *server {
	t.Helper()
	return &server{intaketest.Serve(t, p, settings...)}
}

// serveTLS serves HTTPS, with HTTP/2.
func serveTLS(t *testing.T, handler http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewUnstartedServer(handler)
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	return s
}

// listenTLS returns the address of such a server.
func listenTLS(t *testing.T, handler http.Handler) string {
	t.Helper()
	return serveTLS(t, handler).Listener.Addr().String()
}

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
