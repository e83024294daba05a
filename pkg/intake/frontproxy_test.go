package intake_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
)

// What a kube-apiserver passes on about the caller is reviewed, all of it. From anybody else, the headers
// are ignored.
func TestFrontProxyAloneSaysWhoTheCallerIs(t *testing.T) {
	proxy, otherProxy, client := certificate(t, "front-proxy"), certificate(t, "other"), certificate(t, "jane")
	apiserver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", jsonType)
		w.WriteHeader(http.StatusCreated)
		_, _ = w.Write(mustJSON(t, authenticationv1.TokenReview{
			TypeMeta: metav1.TypeMeta{APIVersion: "authentication.k8s.io/v1", Kind: "TokenReview"},
			Status:   authenticationv1.TokenReviewStatus{Authenticated: true, User: authenticationv1.UserInfo{Username: "john"}},
		}))
	}))
	defer apiserver.Close()
	authn := delegatingAuthenticator(t, apiserver.URL, await.Timeout, client, proxy, otherProxy)
	const everybody = "system:authenticated"
	admin := &user.DefaultInfo{
		Name: "admin", UID: "7", Groups: []string{"admins", "others", everybody}, Extra: map[string][]string{"example.com/scope": {"a", "b"}},
	}
	for name, test := range map[string]struct {
		certificate *x509.Certificate
		token, name string
		want        user.Info // nil: nobody
	}{
		"the front proxy":                 {certificate: proxy, name: "admin", want: admin},
		"the front proxy, for nobody":     {certificate: proxy},
		"the front proxy, for anonymous":  {certificate: proxy, name: user.Anonymous},
		"a proxy that is not allowed":     {certificate: otherProxy, name: "admin"},
		"a client with a certificate":     {certificate: client, name: "admin", want: &user.DefaultInfo{Name: "jane", Groups: []string{everybody}}},
		"a client with a token":           {token: "t", name: "admin", want: &user.DefaultInfo{Name: "john", Groups: []string{everybody}}},
		"a certificate of an unknown CA":  {certificate: certificate(t, "front-proxy"), name: "admin"},
		"neither certificate nor token":   {name: "admin"},
		"another proxy, and a good token": {certificate: otherProxy, token: "t", name: "admin", want: &user.DefaultInfo{Name: "john", Groups: []string{everybody}}},
	} {
		t.Run(name, func(t *testing.T) {
			var reviewed user.Info
			s := serve(t, written(), withServer(func(o *intake.ServerOptions) { o.Authenticator = authn }),
				authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
					reviewed = a.GetUser()
					return authorizer.DecisionAllow, "", nil
				}),
				withQueries(func(q intake.Query) (http.HandlerFunc, bool, error) {
					_, err := q.Authorize(q.Context(), "list", "shop")
					return sends("seen"), false, err
				}))
			req := newRequest(t.Context(), t, http.MethodGet, things, nil, withoutToken, "true", "X-Remote-Uid", "7")
			req.Header["X-Remote-Group"] = []string{"admins", "others"}
			req.Header["X-Remote-Extra-Example.com%2fscope"] = []string{"a", "b"}
			if test.name != "" {
				req.Header.Set("X-Remote-User", test.name)
			}
			if test.token != "" {
				req.Header.Set("Authorization", "Bearer "+test.token)
			}
			if test.certificate != nil {
				req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{test.certificate}}
			}
			code := http.StatusOK
			if test.want == nil {
				code = http.StatusUnauthorized
			}
			equal(t, "the answer", s.Send(req).Code, code)
			if u, ok := reviewed.(*user.DefaultInfo); ok && test.certificate == client {
				u.Extra = nil // the hash of its certificate
			}
			equal(t, "the user who is reviewed", reviewed, test.want)
		})
	}
}

// passedOn is a request of a user as a kube-apiserver passes it on.
func passedOn(ctx context.Context, t *testing.T, by, path string) *http.Request {
	req := newRequest(ctx, t, http.MethodGet, path, nil, withoutToken, "true", "X-Remote-User", by)
	req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("proxy"), Subject: pkix.Name{CommonName: "front-proxy"}}}}
	return req
}

// users authenticates each request as the user whom a front proxy passes on, or whom its token names.
func users(wait func(name string)) setting {
	return withServer(func(o *intake.ServerOptions) {
		o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
			name := cmp.Or(req.Header.Get("X-Remote-User"), strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer "))
			wait(name)
			return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
		})
	})
}

// While many requests of one user are authenticated, the front proxy's others get in.
func TestUserOfAFrontProxyTakesNoPlacesOfAnother(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		release := make(chan struct{})
		s := serve(t, written(), withQueries(func(intake.Query) (http.HandlerFunc, bool, error) { return sends("seen"), false, nil }),
			users(func(name string) {
				if name == "noisy" {
					<-release
				}
			}))
		equal(t, "the first", s.Send(passedOn(t.Context(), t, "first", things)).Code, http.StatusOK)
		var answers []<-chan answer
		for range 100 {
			answers = append(answers, background(func() answer { return s.Send(passedOn(t.Context(), t, "noisy", things)) }))
		}
		synctest.Wait()
		equal(t, "another user", s.Send(passedOn(t.Context(), t, "quiet", things)).Code, http.StatusOK)
		close(release)
		codes := map[int]int{}
		for _, a := range answers {
			codes[(<-a).Code]++
		}
		// One flow has a third of 64.
		equal(t, "the answers to the noisy user", codes, map[int]int{http.StatusOK: 21, http.StatusTooManyRequests: 79})
	})
}

// The watches of a user count together, whether a front proxy has passed them on or not.
func TestWatchesThroughAFrontProxyAreThoseOfTheirUser(t *testing.T) {
	bubble(t, "", func(t *testing.T) {
		s := serve(t, written(), users(func(string) {}), withQueries(func(intake.Query) (http.HandlerFunc, bool, error) {
			return func(w http.ResponseWriter, req *http.Request) {
				w.WriteHeader(http.StatusOK)
				<-req.Context().Done()
			}, true, nil
		}))
		ctx, leave := context.WithCancel(t.Context())
		var open sync.WaitGroup
		watch := func(req *http.Request) int {
			r := newOpenResponse()
			open.Go(func() { s.ServeHTTP(r, req) })
			synctest.Wait()
			code, _ := r.read()
			return code
		}
		direct := func() *http.Request {
			return newRequest(ctx, t, http.MethodGet, things+"?watch=true", nil, "Authorization", "Bearer noisy")
		}
		codes := map[int]int{}
		for range 15 {
			codes[watch(passedOn(ctx, t, "noisy", things+"?watch=true"))]++
			codes[watch(direct())]++
		}
		// One flow has a third of 64.
		equal(t, "the watches of the noisy user", codes, map[int]int{http.StatusOK: 21, http.StatusTooManyRequests: 9})
		equal(t, "the watch of another", watch(passedOn(ctx, t, "quiet", things+"?watch=true")), http.StatusOK)
		leave()
		open.Wait()
	})
}
