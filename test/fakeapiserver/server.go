package fakeapiserver

import (
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"sync/atomic"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// Options of a Server.
type Options struct {
	// ClientCA, if not nil, is published as the CA of client certificates, in PEM.
	ClientCA []byte
	// Tokens are those that a TokenReview accepts.
	Tokens map[string]Token
}

// Server is a running apiserver.
type Server struct {
	tokens                     map[string]Token
	events, leases, configMaps *store
	server                     *httptest.Server
	closing                    chan struct{} // closed by Close, so that watches end

	counts struct{ creates, patches, reads, tokenReviews, accessReviews atomic.Int64 }
}

// Counts are the requests that a Server has answered with success.
type Counts struct {
	Creates, Patches, Reads     int64 // of Events; a read is an empty patch
	TokenReviews, AccessReviews int64
}

// Writes is how many writes of Events there were.
func (c Counts) Writes() int64 { return c.Creates + c.Patches }

// Start starts a Server on a free port of the loopback address. The caller closes it.
func Start(o Options) *Server {
	s := &Server{
		tokens: o.Tokens, closing: make(chan struct{}),
		events:     newStore(corev1.Resource("events")),
		leases:     newStore(coordinationv1.Resource("leases")),
		configMaps: newStore(corev1.Resource("configmaps")),
	}
	published := &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: "extension-apiserver-authentication"},
	}
	if o.ClientCA != nil {
		published.Data = map[string]string{"client-ca-file": string(o.ClientCA)}
	}
	_ = s.configMaps.create(published) // the first one
	s.server = httptest.NewUnstartedServer(s.handler())
	s.server.EnableHTTP2 = true
	s.server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that leave
	s.server.StartTLS()
	return s
}

func (s *Server) handler() http.Handler {
	mux := http.NewServeMux()
	for group, a := range map[string]*eventsAPI{"/api/v1": coreEvents, "/apis/events.k8s.io/v1": newStyleEvents} {
		handle := func(pattern, path string, serve func(*eventsAPI, http.ResponseWriter, *http.Request)) {
			mux.HandleFunc(fmt.Sprintf("%s %s%s", pattern, group, path), func(w http.ResponseWriter, req *http.Request) { serve(a, w, req) })
		}
		handle("GET", "/events", s.listEvents)
		handle("GET", "/namespaces/{namespace}/events", s.listEvents)
		handle("POST", "/namespaces/{namespace}/events", s.createEvent)
		handle("GET", "/namespaces/{namespace}/events/{name}", s.getEvent)
		handle("PATCH", "/namespaces/{namespace}/events/{name}", s.patchEvent)
	}
	const leases = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
	mux.HandleFunc("GET "+leases, s.listLeases)
	mux.HandleFunc("GET "+leases+"/{name}", s.getLease)
	mux.HandleFunc("PUT "+leases+"/{name}", s.putLease)
	mux.HandleFunc("POST /apis/authentication.k8s.io/v1/tokenreviews", s.reviewToken)
	mux.HandleFunc("POST /apis/authorization.k8s.io/v1/subjectaccessreviews", s.reviewAccess)
	const configMaps = "/api/v1/namespaces/{namespace}/configmaps"
	mux.HandleFunc("GET "+configMaps, s.listConfigMaps)
	mux.HandleFunc("GET "+configMaps+"/{name}", func(w http.ResponseWriter, req *http.Request) {
		o, err := s.configMaps.get(keyOf(req))
		if err != nil {
			fail(w, req, err)
			return
		}
		respond(w, req, http.StatusOK, o)
	})
	return mux
}

// Config is that of a client without credentials and without a rate limit.
func (s *Server) Config() *rest.Config {
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.server.Certificate().Raw})
	return &rest.Config{Host: s.server.URL, QPS: -1, TLSClientConfig: rest.TLSClientConfig{CAData: ca}}
}

// Counts returns what was served so far.
func (s *Server) Counts() Counts {
	return Counts{
		Creates: s.counts.creates.Load(), Patches: s.counts.patches.Load(), Reads: s.counts.reads.Load(),
		TokenReviews: s.counts.tokenReviews.Load(), AccessReviews: s.counts.accessReviews.Load(),
	}
}

// Close ends watches and connections, and returns when all requests are answered.
func (s *Server) Close() {
	close(s.closing)
	s.server.CloseClientConnections()
	s.server.Close()
}
