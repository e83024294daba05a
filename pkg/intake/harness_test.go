package intake_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

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
