package intake_test

import (
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"net/http"
	"net/http/httptest"
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

// bearers is an authenticator for which a token is the name of its caller. It rejects
// tokens that begin with bogus.
type bearers struct {
	asked atomic.Int64
	takes time.Duration
}

func (b *bearers) set(_ *intake.Options, o *intake.ServerOptions) {
	o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
		b.asked.Add(1)
		time.Sleep(b.takes)
		name := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
		if strings.HasPrefix(name, "bogus") {
			return nil, false, nil
		}
		return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
	})
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

func TestRequestWithoutCredentialsIsNotReviewed(t *testing.T) {
	who := &bearers{}
	s := serve(t, written(), who.set, func(_ *intake.Options, o *intake.ServerOptions) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("metrics were given") })
	})
	for _, header := range [][]string{
		{withoutToken, "true"},
		{"Authorization", "Basic dGVzdGVyOg=="},
		{"Authorization", "Bearer "},
		{withoutToken, "true", "Sec-WebSocket-Protocol", "base64url.bearer.authorization.k8s.io.dA", "Upgrade", "websocket", "Connection", "Upgrade"},
		{withoutToken, "true", "X-Remote-User", "admin"},
	} {
		for _, path := range []string{"/api", "/metrics", "/version", "/nonsense", coreEvents} {
			s.Do(t, http.MethodGet, path, nil, header...).Want(t, 401, metav1.StatusReasonUnauthorized)
		}
		s.Do(t, http.MethodPost, coreEvents, classic("a", 1), header...).Want(t, 401, metav1.StatusReasonUnauthorized)
		if a := s.Do(t, http.MethodGet, "/livez", nil, header...); a.Code != 200 {
			t.Errorf("a probe is answered %d", a.Code)
		}
	}
	if got := who.asked.Load(); got != 0 {
		t.Errorf("%d requests without credentials are reviewed", got)
	}
	if got := s.refused(t, "no_credentials"); got != 30 {
		t.Errorf("%v were counted, want 30", got)
	}
}

func TestRejectedTokenIsNotReviewedAgainForAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{}
		s := serve(t, written(), who.set)
		for range 100 {
			s.as(t, "bogus", "10.0.0.1", "a").Want(t, 401, metav1.StatusReasonUnauthorized)
		}
		if got := who.asked.Load(); got != 1 {
			t.Errorf("asked %d times about one token", got)
		}
		time.Sleep(11 * time.Second)
		s.as(t, "bogus", "10.0.0.1", "a").Want(t, 401, metav1.StatusReasonUnauthorized)
		if got := who.asked.Load(); got != 2 {
			t.Errorf("asked %d times, and once of them later", got)
		}
	})
}

// A flood of bogus tokens from one address has its own share of the reviews and of the
// requests in flight. Known callers, and those from other addresses, are not delayed.
func TestBogusTokensCostKnownCallersAndOtherAddressesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{takes: 10 * time.Millisecond}
		s := serve(t, written(), who.set, func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 100 })
		s.as(t, "known", "10.0.0.1", "first").Want(t, 201, "")
		time.Sleep(11 * time.Second) // its review is kept no more

		stop := make(chan struct{})
		var flood sync.WaitGroup
		for i := range 40 {
			flood.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(50 * time.Millisecond):
					}
					s.as(t, fmt.Sprintf("bogus-%d-%d", i, n), "10.0.0.1", "a")
				}
			})
		}
		time.Sleep(4 * time.Second) // all that may come in a burst is used up
		for round, name := range []string{"known", "new"} {
			address := []string{"10.0.0.1", "10.0.0.2"}[round] // the first is the flood's own
			begun := time.Now()
			s.as(t, name, address, "of-"+name).Want(t, 201, "")
			if took := time.Since(begun); took > 200*time.Millisecond {
				t.Errorf("%s waited for %s", name, took)
			}
		}
		begun := time.Now()
		asked := who.asked.Load()
		time.Sleep(2 * time.Second)
		if rate := float64(who.asked.Load()-asked) / time.Since(begun).Seconds(); rate > 110 {
			t.Errorf("the apiserver is asked %v times a second", rate)
		}
		close(stop)
		flood.Wait()
		if s.refused(t, "strangers_share") == 0 {
			t.Error("the flood was not refused anything")
		}
	})
}

// One caller cannot fill the requests in flight, whatever namespaces and ServiceAccounts
// it uses.
func TestCallerThatWaitsForManyWritesLeavesOthersTheirShare(t *testing.T) {
	for name, flood := range map[string]func(i int) (user, path string){
		"one namespace":   func(int) (string, string) { return "noisy", coreEvents },
		"many namespaces": func(i int) (string, string) { return "noisy", fmt.Sprintf("/api/v1/namespaces/ns-%d/events", i) },
		"many ServiceAccounts of one namespace": func(i int) (string, string) {
			return fmt.Sprintf("system:serviceaccount:noisy:a%d", i), coreEvents
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				who := &bearers{}
				p := kept()
				p.Recorded = make(chan *occurrence.Occurrence, 1000)
				s := serve(t, p, who.set, func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 100 })
				codes := make(chan int, 200)
				var all sync.WaitGroup
				for i := range 200 {
					all.Go(func() {
						user, path := flood(i)
						event := classic(fmt.Sprint("a", i), 1)
						event.Namespace = ""
						event.InvolvedObject.Namespace = strings.Split(path, "/")[4]
						req := newRequest(t.Context(), t, http.MethodPost, path, event, "Authorization", "Bearer "+user)
						req.RemoteAddr = fmt.Sprintf("10.0.%d.1:1234", i)
						codes <- s.Send(req).Code
					})
					synctest.Wait()
				}
				inside := 200 - len(codes)
				if inside > 50 || inside < 30 {
					t.Errorf("%d requests of one caller are in flight, of 100 that may be", inside)
				}
				var other sync.WaitGroup
				for i := range 5 {
					other.Go(func() { s.as(t, "quiet", "10.0.0.2", fmt.Sprint("b", i)).Want(t, 201, "") })
				}
				synctest.Wait()
				for range inside + 5 {
					(<-p.Recorded).Settled(stored(occurrence.Created, 1))
				}
				other.Wait()
				all.Wait()
				for range inside {
					<-codes
				}
			})
		})
	}
}

// A request that waits for its write, or for its name, has no seat. So any number may
// wait while others are handled.
func TestNothingWaitsWithASeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{}
		s := serve(t, kept(), who.set)
		var writes []*occurrence.Occurrence
		for i := range 100 {
			_ = background(func() answer { return s.as(t, "waits", "10.0.0.1", fmt.Sprint("a", i)) })
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
		first := background(func() answer { return s.as(t, "waits", "10.0.0.1", "same") })
		o := <-s.Pipeline.Recorded
		var waiting []<-chan answer
		for range 100 {
			waiting = append(waiting, background(func() answer {
				return s.Do(t, http.MethodPatch, coreEvents+"/same", `{"count":2}`, "Authorization", "Bearer waits")
			}))
		}
		synctest.Wait()
		if a := s.Do(t, http.MethodPatch, coreEvents+"/unknown", `{"count":2}`, "Authorization", "Bearer other"); a.Code != 404 {
			t.Errorf("another is answered %d", a.Code)
		}
		o.Settled(stored(occurrence.Created, 1))
		(<-first).Want(t, 201, "")
		(<-s.Pipeline.Recorded).Settled(stored(occurrence.Merged, 2)) // the others report nothing new
		for _, a := range waiting {
			(<-a).Want(t, 200, "")
		}
	})
}

// A caller that uses another name each time reaches its rate of reviews, and does not
// delay those of others.
func TestReviewsOfRightsAreLimitedForEachTenant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{}
		var asked atomic.Int64
		s := serve(t, written(), who.set, authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
			asked.Add(1)
			return authorizer.DecisionNoOpinion, "", nil
		}))
		stop := make(chan struct{})
		var flood sync.WaitGroup
		for i := range 40 {
			flood.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					case <-time.After(20 * time.Millisecond):
					}
					path := fmt.Sprintf("/api/v1/namespaces/n-%d-%d/events", i, n)
					s.Do(t, []string{http.MethodGet, http.MethodPatch}[n%2], path, nil, "Authorization", "Bearer noisy")
				}
			})
		}
		time.Sleep(4 * time.Second) // all that may come in a burst is used up
		begun, before := time.Now(), asked.Load()
		s.as(t, "quiet", "10.0.0.2", "a").Want(t, 403, metav1.StatusReasonForbidden)
		if took := time.Since(begun); took > time.Second {
			t.Errorf("another waited for %s", took)
		}
		time.Sleep(2 * time.Second)
		if rate := float64(asked.Load()-before) / time.Since(begun).Seconds(); rate > 210 {
			t.Errorf("asked %v times a second", rate)
		}
		close(stop)
		flood.Wait()
	})
}

// Cached decisions are not limited.
func TestCachedDecisionsAreNoReviews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{}
		s := serve(t, written(), who.set)
		begun := time.Now()
		for i := range 2000 {
			s.as(t, "busy", "10.0.0.1", fmt.Sprint("a", i)).Want(t, 201, "")
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("waited for %s", took)
		}
	})
}

func TestResponseThatIsTooLargeIsNotBuffered(t *testing.T) {
	s := serve(t, written(), func(_ *intake.Options, o *intake.ServerOptions) {
		o.Metrics = http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for range 64 {
				if _, err := w.Write(make([]byte, 1<<20)); err != nil {
					return
				}
			}
		})
	})
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("net/http is told %v", p)
		}
		if got := s.Metric(t, "eventd_intake_aborted_answers_total", "too_large"); got != 1 {
			t.Errorf("%v were counted", got)
		}
	}()
	s.ServeHTTP(httptest.NewRecorder(), newRequest(t.Context(), t, http.MethodGet, "/metrics", nil))
}

// One certificate of a front proxy has the requests of many users. Each user has its own
// share.
func TestUsersBehindAFrontProxyHaveSharesOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := kept()
		s := serve(t, p, func(_ *intake.Options, o *intake.ServerOptions) {
			o.MaxInFlight = 30
			o.Authenticator = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
				return &authenticator.Response{User: &user.DefaultInfo{Name: req.Header.Get("X-Remote-User")}}, true, nil
			})
		})
		post := func(name, event string) answer {
			req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic(event, 1), withoutToken, "true", "X-Remote-User", name)
			req.TLS = &tls.ConnectionState{PeerCertificates: []*x509.Certificate{{Raw: []byte("proxy"), Subject: pkix.Name{CommonName: "front-proxy-client"}}}}
			return s.Send(req)
		}
		var all sync.WaitGroup
		for i := range 30 {
			all.Go(func() { post("noisy", fmt.Sprint("noisy-", i)) })
			synctest.Wait()
		}
		refused := s.refused(t, "share")
		if refused == 0 {
			t.Error("the noisy user fills the limit")
		}
		all.Go(func() { post("quiet", "quiet") })
		synctest.Wait()
		if got := s.refused(t, "share"); got != refused {
			t.Error("another user of the same proxy is refused")
		}
		time.Sleep(2 * time.Minute)
		all.Wait()
	})
}

func TestLargeHeadersCountAsSeveralRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		who := &bearers{takes: time.Second}
		s := serve(t, written(), who.set, func(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 40 })
		var answers []<-chan answer
		for i := range 8 {
			req := newRequest(t.Context(), t, http.MethodPost, coreEvents, classic(fmt.Sprint("a", i), 1),
				"Authorization", fmt.Sprint("Bearer large", i), "Padding", strings.Repeat("x", 60<<10))
			req.RemoteAddr = "10.0.0.1:1234"
			answers = append(answers, background(func() answer { return s.Send(req) }))
		}
		synctest.Wait()
		s.as(t, "small", "10.0.0.2", "small").Want(t, 201, "")
		codes := map[int]int{}
		for _, a := range answers {
			codes[(<-a).Code]++
		}
		// An address has a third of the limit, and each of these counts as four requests.
		if codes[201] != 3 || codes[429] != 5 {
			t.Errorf("answered %v", codes)
		}
	})
}
