// Package intaketest serves an intake in front of a pipeline that a test controls, and
// sends requests to it.
package intaketest

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"go.uber.org/goleak"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	apiserverapi "k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/authenticatorfactory"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/authorization/authorizerfactory"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/testenv"
)

// Main runs the tests of a package, and fails if goroutines are left.
func Main(m *testing.M) {
	// The second handler sleeps by a clock that is shared between the bubbles of
	// synctest, which begin in another year than the rest of the world.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	goleak.VerifyTestMain(testenv.Runner(m))
}

// Server is an intake's handler. It is called without a network in between, so that a
// test in a synctest bubble sees when every request waits.
type Server struct {
	http.Handler
	Bare     http.Handler // without the token that a request without one gets
	Intake   *intake.Intake
	Pipeline *Pipeline
	Registry *prometheus.Registry
}

// Setting changes the options of a server.
type Setting = func(*intake.Options, *intake.ServerOptions)

// Serve starts a server that authenticates and authorizes all requests, unless a setting
// changes that.
func Serve(t testing.TB, p *Pipeline, settings ...Setting) *Server {
	t.Helper()
	s := &Server{Pipeline: p, Registry: prometheus.NewPedanticRegistry()}
	options := intake.DefaultOptions()
	options.Record, options.Registerer = p.Record, s.Registry
	serverOptions := intake.ServerOptions{Authorizer: authorizerfactory.NewAlwaysAllowAuthorizer()}
	Authenticated(&user.DefaultInfo{Name: "tester"})(&options, &serverOptions)
	for _, set := range settings {
		set(&options, &serverOptions)
	}
	var err error
	if s.Intake, err = intake.New(options); err != nil {
		t.Fatal(err)
	}
	serverOptions.Intake = s.Intake
	handler, err := intake.NewHandler(serverOptions)
	if err != nil {
		t.Fatal(err)
	}
	s.Bare, s.Handler = handler, Presenting(handler)
	return s
}

// WithoutToken is a header of a request that is to have no token.
const WithoutToken = "Test-No-Token"

// Presenting adds a token to requests without one, which would be refused.
func Presenting(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.Header.Get(WithoutToken) == "" && req.Header.Get("Authorization") == "" {
			req.Header.Set("Authorization", "Bearer of-the-tester")
		}
		next.ServeHTTP(w, req)
	})
}

// Authenticated authenticates all requests as one user.
func Authenticated(as *user.DefaultInfo) Setting {
	return func(_ *intake.Options, o *intake.ServerOptions) {
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: as}, true, nil
		})
	}
}

// Authorized authorizes requests with a function, which caches nothing.
func Authorized(allow Decision) Setting {
	return func(_ *intake.Options, o *intake.ServerOptions) { o.Authorizer, o.AccessReviewTTL = allow, -1 }
}

// Decision is a function that authorizes.
type Decision func(authorizer.Attributes) (authorizer.Decision, string, error)

// Authorize implements authorizer.Authorizer.
func (d Decision) Authorize(_ context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	return d(a)
}

// Delegating returns what has an apiserver review tokens and access, as the daemon does.
func Delegating(t testing.TB, client kubernetes.Interface) (authenticator.Request, authorizer.Authorizer) {
	t.Helper()
	const ttl = 10 * time.Second
	backoff := &wait.Backoff{Duration: time.Millisecond, Factor: 1.5, Steps: 2}
	authn, _, err := authenticatorfactory.DelegatingAuthenticatorConfig{
		Anonymous:                &apiserverapi.AnonymousAuthConfig{Enabled: true},
		TokenAccessReviewClient:  client.AuthenticationV1(),
		TokenAccessReviewTimeout: 10 * time.Second,
		WebhookRetryBackoff:      backoff,
		CacheTTL:                 ttl,
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	authz, err := authorizerfactory.DelegatingAuthorizerConfig{
		SubjectAccessReviewClient: client.AuthorizationV1(),
		AllowCacheTTL:             ttl,
		DenyCacheTTL:              ttl,
		WebhookRetryBackoff:       backoff,
	}.New()
	if err != nil {
		t.Fatal(err)
	}
	return authn, authz
}

// Metric is the value of a metric, or how much a histogram has observed. The label, if
// any, is the value of the only label.
func (s *Server) Metric(t testing.TB, name string, label ...string) float64 {
	t.Helper()
	families, err := s.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		if family.GetName() != name {
			continue
		}
		for _, m := range family.GetMetric() {
			has := func(l *dto.LabelPair) bool { return l.GetValue() == label[0] }
			if len(label) == 0 || slices.ContainsFunc(m.GetLabel(), has) {
				return m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	t.Fatalf("no metric %s %v", name, label)
	return 0
}

// WantMetric compares the value of a metric.
func (s *Server) WantMetric(t testing.TB, want float64, name string, label ...string) {
	t.Helper()
	if got := s.Metric(t, name, label...); got != want {
		t.Errorf("%s %v is %v, want %v", name, label, got, want)
	}
}
