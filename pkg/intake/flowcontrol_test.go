package intake_test

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

const forWebSocket = "base64url.bearer.authorization.k8s.io.dA"

// bearers is an authenticator for which a token, or the header of a front proxy, is the
// name of its caller. It rejects tokens that begin with bogus, and those for a WebSocket.
type bearers struct {
	asked atomic.Int64
	takes time.Duration
}

func (b *bearers) set(_ *intake.Options, o *intake.ServerOptions) {
	o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		b.asked.Add(1)
		time.Sleep(b.takes)
		token := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if strings.HasPrefix(token, "bogus") || req.Header.Get("Sec-WebSocket-Protocol") != "" {
			return nil, false, nil
		}
		name := cmp.Or(req.Header.Get("X-Remote-User"), token)
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
	})
}

func inFlight(n int) setting {
	return withServer(func(o *intake.ServerOptions) { o.MaxInFlight = n })
}

// as posts an Event as a caller, from an address.
func (s *server) as(t *testing.T, name, address, event string) answer {
	t.Helper()
	req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic(event, 1), "Authorization", "Bearer "+name)
	req.RemoteAddr = address + ":1234"
	return s.Send(req)
}

func (s *server) refused(t *testing.T, reason string) float64 {
	t.Helper()
	return s.Metric(t, "eventd_intake_refused_total", reason)
}

// flood has 40 clients send a request after each pause, until stop is called.
func flood(pause time.Duration, send func(client, n int)) (stop func()) {
	stopped := make(chan struct{})
	var clients sync.WaitGroup
	for client := range 40 {
		clients.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stopped:
					return
				case <-time.After(pause):
				}
				send(client, n)
			}
		})
	}
	return func() {
		close(stopped)
		clients.Wait()
	}
}

func TestRequestWithoutCredentialsIsNotReviewed(t *testing.T) {
	who := &bearers{}
	s := serve(t, written(), who.set, withServer(func(o *intake.ServerOptions) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("metrics were given") })
	}))
	for _, header := range [][]string{
		{withoutToken, "true"},
		{"Authorization", "Basic dGVzdGVyOg=="},
		{"Authorization", "Bearer "},
		{withoutToken, "true", "Sec-WebSocket-Protocol", forWebSocket, "Upgrade", "websocket", "Connection", "Upgrade"},
		{withoutToken, "true", "X-Remote-User", "admin"},
		{withoutToken, "true", intake.AssertedUserHeader, "bm9ib2R5"},
	} {
		for _, path := range []string{"/api", "/metrics", "/version", "/nonsense", coreEvents} {
			s.Do(t, http.MethodGet, path, nil, header...).Want(t, 401, metav1.StatusReasonUnauthorized)
		}
		s.Do(t, http.MethodPost, coreEvents, classic("a", 1), header...).Want(t, 401, metav1.StatusReasonUnauthorized)
		equal(t, "code of a probe", s.Do(t, http.MethodGet, "/livez", nil, header...).Code, 200)
	}
	equal(t, "reviews without credentials", who.asked.Load(), 0)
	equal(t, "counted", s.refused(t, "no_credentials"), 36)
	// A token for a WebSocket beside the one that is reviewed is removed.
	s.Do(t, http.MethodPost, coreEvents, classic("a", 1), "Sec-WebSocket-Protocol", forWebSocket).Want(t, 201, "")
}

func TestRejectedTokenIsNotReviewedAgainForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{}
		s := serve(t, written(), who.set)
		for range 100 {
			s.as(t, "bogus", "10.0.0.1", "a").Want(t, 401, metav1.StatusReasonUnauthorized)
		}
		equal(t, "reviews of one token", who.asked.Load(), 1)
		equal(t, "counted", s.refused(t, "rejected_credentials"), 99)
		time.Sleep(11 * time.Second)
		s.as(t, "bogus", "10.0.0.1", "a").Want(t, 401, metav1.StatusReasonUnauthorized)
		equal(t, "reviews, with one later", who.asked.Load(), 2)
	})
}

// A flood of bogus tokens from one address has its own share of the reviews and of the
// requests in flight. Known callers, and those from other addresses, are not delayed.
func TestBogusTokensCostKnownCallersAndOtherAddressesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{takes: 10 * time.Millisecond}
		s := serve(t, written(), who.set, inFlight(100))
		s.as(t, "known", "10.0.0.1", "first").Want(t, 201, "")
		time.Sleep(11 * time.Second) // its review is kept no more
		defer flood(50*time.Millisecond, func(client, n int) {
			s.as(t, fmt.Sprintf("bogus-%d-%d", client, n), "10.0.0.1", "a")
		})()
		time.Sleep(4 * time.Second) // all that may come in a burst is used up
		for name, address := range map[string]string{"known": "10.0.0.1", "new": "10.0.0.2"} {
			begun := time.Now()
			s.as(t, name, address, "of-"+name).Want(t, 201, "")
			if took := time.Since(begun); took > 200*time.Millisecond {
				t.Errorf("%s waited for %s", name, took)
			}
		}
		begun, asked := time.Now(), who.asked.Load()
		time.Sleep(2 * time.Second)
		if rate := float64(who.asked.Load()-asked) / time.Since(begun).Seconds(); rate > 110 {
			t.Errorf("the apiserver is asked %v times a second", rate)
		}
		if s.refused(t, "strangers_share") == 0 {
			t.Error("the flood was not refused anything")
		}
	})
}

// One caller cannot fill the requests in flight, whatever namespaces and ServiceAccounts
// it uses. Users behind one front proxy have shares of their own.
func TestCallerThatWaitsForManyWritesLeavesOthersTheirShare(t *testing.T) {
	type caller struct{ token, proxied, namespace string }
	proxy := &x509.Certificate{Raw: []byte("proxy"), Subject: pkix.Name{CommonName: "front-proxy-client"}}
	for name, noisy := range map[string]func(i int) caller{
		"one namespace":   func(int) caller { return caller{token: "noisy", namespace: "ns"} },
		"many namespaces": func(i int) caller { return caller{token: "noisy", namespace: fmt.Sprint("ns-", i)} },
		"many ServiceAccounts of one namespace": func(i int) caller {
			return caller{token: fmt.Sprint("system:serviceaccount:noisy:a", i), namespace: "ns"}
		},
		"another ServiceAccount of the namespace": func(int) caller {
			return caller{token: "system:serviceaccount:shared:noisy", namespace: "ns"}
		},
		"one user of a front proxy": func(int) caller { return caller{proxied: "noisy", namespace: "ns"} },
	} {
		bubble(t, name, func(t *testing.T) {
			p := kept()
			p.Recorded = make(chan *occurrence.Occurrence, 1000)
			s := serve(t, p, (&bearers{}).set, inFlight(100))
			send := func(by caller, address, name string) answer {
				event := classic(name, 1)
				event.Namespace, event.InvolvedObject.Namespace = "", by.namespace
				path := "/api/v1/namespaces/" + by.namespace + "/events"
				req := newRequest(t.Context(), t, http.MethodPost, path, event, "Authorization", "Bearer "+by.token)
				if by.proxied != "" {
					req.Header = http.Header{withoutToken: {"true"}, "X-Remote-User": {by.proxied}, "Content-Type": {jsonType}}
					req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{proxy}}
				}
				req.RemoteAddr = address + ":1234"
				return s.Send(req)
			}
			codes := make(chan int, 200)
			for i := range 200 {
				go func() { codes <- send(noisy(i), fmt.Sprintf("10.0.%d.1", i), fmt.Sprint("a", i)).Code }()
				synctest.Wait()
			}
			inside := 200 - len(codes)
			if inside > 50 || inside < 25 {
				t.Errorf("%d requests of one caller are in flight, of 100 that may be", inside)
			}
			quiet := caller{token: "quiet", namespace: "ns"}
			switch {
			case noisy(0).proxied != "":
				quiet = caller{proxied: "quiet", namespace: "ns"}
			case noisy(0).token == noisy(1).token:
				quiet.token = strings.Replace(noisy(0).token, "noisy", "quiet", 1)
			}
			var others sync.WaitGroup
			for i := range 5 {
				others.Go(func() { send(quiet, "10.0.0.2", fmt.Sprint("b", i)).Want(t, 201, "") })
			}
			synctest.Wait()
			for range inside + 5 {
				(<-p.Recorded).Settled(stored(occurrence.Created, 1))
			}
			others.Wait()
			for range 200 {
				<-codes
			}
		})
	}
}

// A request that waits for its write, or for its name, has no seat. So any number may
// wait while others are handled.
func TestNothingWaitsWithASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept(), (&bearers{}).set)
		as := func(name string) func() answer {
			return func() answer { return s.as(t, "waits", "10.0.0.1", name) }
		}
		var writes []*occurrence.Occurrence
		var answered []<-chan answer
		for i := range 100 {
			answered = append(answered, background(as(fmt.Sprint("a", i))))
			select {
			case o := <-s.Pipeline.Recorded:
				writes = append(writes, o)
			case <-time.After(time.Second):
				t.Fatalf("with %d writes under way there is no seat for another request", i)
			}
		}
		for _, o := range writes {
			o.Settled(stored(occurrence.Created, 1))
		}
		for _, a := range answered { // until then, they are in flight
			(<-a).Want(t, 201, "")
		}
		patch := func(who, name string) answer {
			return s.Do(t, http.MethodPatch, coreEvents+"/"+name, `{"count":2}`, "Authorization", "Bearer "+who)
		}
		first, o := s.pending(as("same"))
		var waiting []<-chan answer
		for range 100 {
			waiting = append(waiting, background(func() answer { return patch("waits", "same") }))
		}
		synctest.Wait()
		equal(t, "code for another", patch("other", "unknown").Code, 404)
		o.Settled(stored(occurrence.Created, 1))
		(<-first).Want(t, 201, "")
		(<-s.Pipeline.Recorded).Settled(stored(occurrence.Merged, 2)) // the others report nothing new
		for _, a := range waiting {
			(<-a).Want(t, 200, "")
		}
	})
}

// A caller that uses another name each time reaches its rate of reviews, and does not
// delay those of another tenant, nor those of what another user of its tenant was allowed before.
func TestReviewsOfRightsAreLimitedForEachTenantAndUser(t *testing.T) {
	for name, callers := range map[string]struct {
		noisy func(client int) string
		quiet string
	}{
		"another tenant": {func(int) string { return "noisy" }, "quiet"},
		"another user":   {func(client int) string { return fmt.Sprint("system:serviceaccount:a:noisy-", client) }, "system:serviceaccount:a:quiet"},
	} {
		bubble(t, name, func(t *testing.T) {
			var asked atomic.Int64
			s := serve(t, written(), (&bearers{}).set, authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
				asked.Add(1)
				if a.GetUser().GetName() == callers.quiet {
					return authorizer.DecisionAllow, "", nil
				}
				return authorizer.DecisionNoOpinion, "", nil
			}))
			s.as(t, callers.quiet, "10.0.0.2", "before").Want(t, 201, "")
			defer flood(20*time.Millisecond, func(client, n int) {
				path := fmt.Sprintf("/api/v1/namespaces/n-%d-%d/events", client, n)
				s.Do(t, []string{http.MethodGet, http.MethodPatch}[n%2], path, nil, "Authorization", "Bearer "+callers.noisy(client))
			})()
			time.Sleep(4 * time.Second) // all that may come in a burst is used up
			begun, before := time.Now(), asked.Load()
			s.as(t, callers.quiet, "10.0.0.2", "a").Want(t, 201, "")
			if took := time.Since(begun); took > 100*time.Millisecond {
				t.Errorf("another waited for %s", took)
			}
			time.Sleep(2 * time.Second)
			if rate := float64(asked.Load()-before) / time.Since(begun).Seconds(); rate > 1.05*intake.DefaultAccessReviewQPS {
				t.Errorf("asked %v times a second", rate)
			}
		})
	}
}

// Cached decisions are not limited.
func TestCachedDecisionsAreNoReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, written(), (&bearers{}).set)
		begun := time.Now()
		for i := range 600 { // above every burst of reviews
			s.as(t, "busy", "10.0.0.1", fmt.Sprint("a", i)).Want(t, 201, "")
		}
		equal(t, "waited", time.Since(begun), 0)
	})
}

// A large body counts from when its caller is known: also that of the first request of a caller.
func TestLargeBodiesCountAsSeveralRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serve(t, kept(), inFlight(100))
		large := func(name string) func() answer {
			return func() answer { return s.Post(t, withMessage(name, 100<<10)) }
		}
		first, ofFirst := s.pending(large("a"))
		large("b")().Want(t, http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests)
		small, ofSmall := s.posting(t, "c", 1)
		ofFirst.Settled(stored(occurrence.Created, 1))
		(<-first).Want(t, 201, "")
		second, ofSecond := s.pending(large("d"))
		ofSmall.Settled(stored(occurrence.Created, 1))
		ofSecond.Settled(stored(occurrence.Created, 1))
		(<-small).Want(t, 201, "")
		(<-second).Want(t, 201, "")
	})
}
