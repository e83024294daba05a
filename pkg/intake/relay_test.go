package intake_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	clientscheme "k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/intake"
)

// authenticated has every caller authenticated as one user.
func authenticated(as *user.DefaultInfo) setting {
	return func(_ *intake.Options, o *intake.ServerOptions) {
		o.Authenticator = authenticator.RequestFunc(func(*http.Request) (*authenticator.Response, bool, error) {
			return &authenticator.Response{User: as}, true, nil
		})
	}
}

// pair is a leader that listens, and a standby that knows of it.
func pair(t *testing.T, settings ...setting) (leader, other *replica, where *listening) {
	t.Helper()
	leader, other = standby(t, settings...), standby(t, settings...)
	where = listenTLS(t, leader)
	ended := leader.lead(t)
	t.Cleanup(func() {
		leader.stopLeading(nil)
		<-ended
	})
	where.leads(other)
	return leader, other, where
}

func TestStandbyHasTheLeaderRecord(t *testing.T) {
	leader, other, _ := pair(t)
	created := other.post(t, classic("a", 1))
	created.want(t, 201, "")
	if event := created.event(t); event.Name != "a" || event.UID == "" {
		t.Errorf("answered %+v", event)
	}
	other.patch(t, "a", `{"count":3}`).want(t, 200, "")
	other.do(t, http.MethodPut, coreEvents+"/b", classic("b", 1)).want(t, 201, "")
	other.do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "c")).want(t, 201, "")
	if got := fmt.Sprint(leader.pipeline.weights()); got != "[1 2 1 1]" {
		t.Errorf("the leader has recorded %s", got)
	}
	if got := other.pipeline.weights(); len(got) > 0 {
		t.Errorf("the standby has recorded %v", got)
	}
	leader.pipeline.deferring = true
	other.post(t, classic("d", 1)).want(t, 202, "")
	for code, n := range map[string]float64{"200": 1, "201": 3, "202": 1} {
		if got := other.metric(t, "eventd_relay_requests_total", code); got != n {
			t.Errorf("%v answers of %s", got, code)
		}
	}
}

func TestAnswerOfTheLeaderIsGivenAsItIs(t *testing.T) {
	leader, other, _ := pair(t)
	leader.post(t, classic("a", 1)).want(t, 201, "")
	for name, header := range map[string][]string{
		"json":      {"Accept", "application/json"},
		"yaml":      {"Accept", "application/yaml"},
		"protobuf":  {"Accept", "application/vnd.kubernetes.protobuf"},
		"table":     {"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		"not known": {"Accept", "text/plain"},
		"content":   {"Content-Type", "text/plain"},
	} {
		for _, path := range []string{coreEvents, coreEvents + "?dryRun=All", coreEvents + "?dryRun=Some", coreEvents + "?fieldValidation=Strict&pretty=1"} {
			t.Run(name+path, func(t *testing.T) {
				want := leader.do(t, http.MethodPost, path, classic("a", 1), header...)
				got := other.do(t, http.MethodPost, path, classic("a", 1), header...)
				if got.code != want.code || string(got.body) != string(want.body) {
					t.Errorf("%d: %s\nbut the leader says %d: %s", got.code, got.body, want.code, want.body)
				}
				for _, volatile := range []string{"Audit-Id", "Date", "Content-Length"} {
					got.header.Del(volatile)
					want.header.Del(volatile)
				}
				if !reflect.DeepEqual(got.header, want.header) {
					t.Errorf("header %v\nbut the leader's is %v", got.header, want.header)
				}
			})
		}
	}
}

func TestCallerIsAssertedAsItIs(t *testing.T) {
	caller := &user.DefaultInfo{
		Name: "Jörg, \"the user\"\n", UID: "uid/1", Groups: []string{"system:authenticated", "Ops; all", "ops", ""},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"web-0"}, "Upper Case%": {"a, b", "", "ü"}},
	}
	var asked []user.Info
	leader := standby(t, authenticated(&user.DefaultInfo{Name: "not asserted"}), authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, a.GetUser())
		return authorizer.DecisionAllow, "", nil
	}))
	other := standby(t, authenticated(caller))
	listenTLS(t, leader).leads(other)
	ended := leader.lead(t)
	other.post(t, classic("a", 1)).want(t, 201, "")                                // asks for create and patch
	other.do(t, http.MethodPut, coreEvents+"/b", classic("b", 1)).want(t, 201, "") // for update, twice, and create
	leader.post(t, classic("c", 1)).want(t, 201, "")
	if len(asked) != 7 {
		t.Fatalf("asked %d times", len(asked))
	}
	for _, who := range asked[:5] {
		if !reflect.DeepEqual(who, user.Info(caller)) {
			t.Errorf("it is %#v, want %#v", who, caller)
		}
	}
	if asked[5].GetName() != "not asserted" {
		t.Errorf("without assertion it is %+v", asked[5])
	}
	leader.stopLeading(nil)
	<-ended
}

// The standby has authorized the caller already, but it is the leader who acts.
func TestLeaderAuthorizesTheAssertedCaller(t *testing.T) {
	leader := standby(t, authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "the leader says so", nil
	}))
	other := standby(t)
	listenTLS(t, leader).leads(other)
	leader.lead(t)
	defer leader.stopLeading(nil)
	a := other.post(t, classic("a", 1))
	a.want(t, 403, metav1.StatusReasonForbidden)
	if message := a.status(t).Message; !strings.Contains(message, `"tester"`) || !strings.Contains(message, "the leader says so") {
		t.Error(message)
	}
}

// sent is a request that has arrived.
type sent struct {
	method string
	url    *url.URL
	header http.Header
	body   string
	proto  string
}

// capture stands for a leader: it keeps what it is sent, and says what is to be
// said.
type capture struct {
	*listening
	mu     sync.Mutex
	got    []sent
	answer http.HandlerFunc
}

func newCapture(t *testing.T) *capture {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return newCaptureOn(t, listener)
}

func newCaptureOn(t *testing.T, listener net.Listener) *capture {
	t.Helper()
	c := &capture{answer: func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusCreated) }}
	c.listening = listenOn(t, listener, servingCertificate(t), http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		c.mu.Lock()
		c.got = append(c.got, sent{req.Method, req.URL, req.Header, string(body), req.Proto})
		answer := c.answer
		c.mu.Unlock()
		answer(w, req)
	}))
	return c
}

func (c *capture) requests() []sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append([]sent(nil), c.got...)
}

func TestWhatIsSentToTheLeader(t *testing.T) {
	c := newCapture(t)
	other := standby(t)
	c.leads(other)
	a := other.do(t, http.MethodPatch, newEvents+"/a%41?fieldManager=x%20y&timeout=20s", `{"note":"x"}`,
		"Authorization", "Bearer of-the-client", "User-Agent", "client/1", "Accept", "application/json", "Audit-Id", "audit-1",
		"Eventd-Not-Leading", "true", "Eventd-Other", "x", "Eventd-Asserted-Other", "x",
		"X-Remote-User", "admin", "Connection", "X-Mine, keep-alive", "X-Mine", "1", "Keep-Alive", "1", "Te", "trailers",
		"Upgrade", "h2c", "Proxy-Authorization", "secret")
	if a.code != 201 {
		t.Fatalf("answered %d: %s", a.code, a.body)
	}
	got := c.requests()
	if len(got) != 1 {
		t.Fatalf("sent %d times", len(got))
	}
	s := got[0]
	if s.method != http.MethodPatch || s.url.EscapedPath() != newEvents+"/a%41" || s.body != `{"note":"x"}` || s.proto != "HTTP/2.0" {
		t.Errorf("sent %+v", s)
	}
	query := s.url.Query()
	left, err := time.ParseDuration(query.Get("timeout"))
	if err != nil || left > 20*time.Second || left < 10*time.Second {
		t.Errorf("timeout %s, %v", query.Get("timeout"), err)
	}
	query.Del("timeout")
	if want := (url.Values{"fieldManager": {"x y"}}); !reflect.DeepEqual(query, want) {
		t.Errorf("query %v", query)
	}
	asserted := s.header.Get("Eventd-Asserted-User")
	want := http.Header{
		"Authorization": {"Bearer " + peerToken}, "Eventd-Asserted-User": {asserted}, "User-Agent": {"client/1"},
		"Accept": {"application/json"}, "Audit-Id": {"audit-1"}, "Content-Type": {"application/strategic-merge-patch+json"},
		"Content-Length": {"12"},
	}
	if !reflect.DeepEqual(s.header, want) {
		t.Errorf("header %v\nwant %v", s.header, want)
	}
}

func TestRequestWithoutAUserAgentIsGivenNone(t *testing.T) {
	c := newCapture(t)
	other := standby(t)
	c.leads(other)
	other.do(t, http.MethodPost, coreEvents, classic("a", 1))
	if got := c.requests(); len(got) != 1 || got[0].header.Get("User-Agent") != "" {
		t.Errorf("sent %+v", got)
	}
}

func TestPeerTokenIsReadAgainWhenItIsRotated(t *testing.T) {
	c := newCapture(t)
	path := tokenFile(t, "first\n")
	other := standbyWith(t, written(), replicaOptions{token: path})
	c.leads(other)
	want := []string{"Bearer first", "Bearer first", "Bearer other", "Bearer other"}
	for i := range want {
		if i == 2 {
			rotate(t, path, "other\n") // as long as the first one
		}
		other.post(t, classic("a", 1))
	}
	for i, s := range c.requests() {
		if got := s.header.Get("Authorization"); got != want[i] {
			t.Errorf("request %d has %q, want %q", i, got, want[i])
		}
	}
}

func TestWithoutATokenNothingIsSent(t *testing.T) {
	c := newCapture(t)
	other := standbyWith(t, written(), replicaOptions{token: "/nonexistent/token"})
	c.leads(other)
	other.post(t, classic("a", 1)).want(t, 503, metav1.StatusReasonServiceUnavailable)
	if got := c.requests(); len(got) > 0 || other.metric(t, "eventd_relay_refused_total", "no_token") != 1 {
		t.Errorf("sent %+v", got)
	}
}

// A client would give up on 401, which is not about its own credentials.
func TestReplicaThatTheLeaderDoesNotKnowIsUnavailable(t *testing.T) {
	leader := standby(t)
	other := standbyWith(t, written(), replicaOptions{token: tokenFile(t, "of somebody else")})
	listenTLS(t, leader).leads(other)
	leader.lead(t)
	defer leader.stopLeading(nil)
	a := other.post(t, classic("a", 1))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if a.header.Get("Retry-After") != "1" || other.metric(t, "eventd_relay_refused_total", "unauthorized") != 1 {
		t.Errorf("header %v", a.header)
	}
}

func TestTooLargeABodyIsNotPassedOn(t *testing.T) {
	c := newCapture(t)
	other := standby(t, func(o *intake.Options, _ *intake.ServerOptions) { o.MaxBodyBytes = 2000 })
	c.leads(other)
	other.do(t, http.MethodPost, coreEvents, strings.Repeat("x", 2001)).want(t, 413, metav1.StatusReasonRequestEntityTooLarge)
	if got := c.requests(); len(got) > 0 {
		t.Errorf("sent %d times", len(got))
	}
	other.do(t, http.MethodPost, coreEvents, strings.Repeat("x", 2000))
	if got := c.requests(); len(got) != 1 || len(got[0].body) != 2000 {
		t.Errorf("sent %d times", len(got))
	}
}

// The leader has acted, maybe: to send it again is the client's decision.
func TestRequestWhoseAnswerIsLostIsNotSentAgain(t *testing.T) {
	for name, lose := range map[string]func(*capture) http.HandlerFunc{
		"stream reset": func(*capture) http.HandlerFunc {
			return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
		},
		"connection cut": func(c *capture) http.HandlerFunc {
			return func(_ http.ResponseWriter, req *http.Request) {
				c.CloseClientConnections()
				<-req.Context().Done()
			}
		},
		"answer broken off": func(*capture) http.HandlerFunc {
			return func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Length", "1000")
				w.WriteHeader(http.StatusCreated)
				_, _ = w.Write([]byte("{"))
				_ = http.NewResponseController(w).Flush()
				panic(http.ErrAbortHandler)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := newCapture(t)
			c.answer = lose(c)
			other := standby(t)
			c.leads(other)
			a := other.post(t, classic("a", 1))
			a.want(t, 503, metav1.StatusReasonServiceUnavailable)
			if got := a.header.Get("Retry-After"); got != "1" {
				t.Errorf("Retry-After %q", got)
			}
			if got := len(c.requests()); got != 1 {
				t.Errorf("sent %d times", got)
			}
			if got := other.metric(t, "eventd_relay_refused_total", "lost"); got != 1 {
				t.Errorf("%v lost", got)
			}
			if got := other.metric(t, "eventd_relay_requests_total", "201"); got != 0 {
				t.Errorf("%v answered", got)
			}
		})
	}
}

// Under another name it would be counted again.
func TestClientIsNotToRepeatAnEventWithoutANameWhoseAnswerIsLost(t *testing.T) {
	c := newCapture(t)
	c.answer = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	other := standby(t)
	c.leads(other)
	unnamed := classic("", 1)
	unnamed.GenerateName = "a-"
	encoded, err := runtime.Encode(clientscheme.Codecs.EncoderForVersion(protobuf.NewSerializer(clientscheme.Scheme, clientscheme.Scheme), corev1.SchemeGroupVersion), unnamed)
	if err != nil {
		t.Fatal(err)
	}
	newStyle := strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)
	withoutKind := unnamed.DeepCopy()
	withoutKind.TypeMeta = metav1.TypeMeta{}
	newStyleWithoutKind := strings.Replace(newStyle, `"apiVersion":"events.k8s.io/v1","kind":"Event",`, "", 1)
	const withoutKindYAML = "metadata: {generateName: a-}\ninvolvedObject: {kind: Pod, namespace: ns, name: web-0}\nreason: Started\n"
	for name, a := range map[string]answer{
		"core":     other.post(t, unnamed),
		"protobuf": other.do(t, http.MethodPost, coreEvents, encoded, "Content-Type", "application/vnd.kubernetes.protobuf"),
		"events":   other.do(t, http.MethodPost, newEvents, newStyle),
		// As kopf does.
		"core without kind":   other.post(t, withoutKind),
		"events without kind": other.do(t, http.MethodPost, newEvents, newStyleWithoutKind),
		"yaml without kind":   other.do(t, http.MethodPost, coreEvents, withoutKindYAML, "Content-Type", "application/yaml"),
		"yaml like JSON":      other.do(t, http.MethodPost, coreEvents, `{metadata: {generateName: a-}, involvedObject: {namespace: ns}}`, "Content-Type", "application/yaml"),
	} {
		t.Run(name, func(t *testing.T) {
			a.want(t, 504, metav1.StatusReasonTimeout)
			if got := a.header.Get("Retry-After"); got != "" {
				t.Errorf("Retry-After %q", got)
			}
		})
	}
	if got := other.metric(t, "eventd_relay_refused_total", "lost"); got != 7 {
		t.Errorf("%v lost", got)
	}
}

// Neither the request nor others wait for longer than they said they would.
func TestLeaderThatDoesNotAnswerCostsARequestItsDeadline(t *testing.T) {
	c := newCapture(t)
	c.answer = func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get("fieldManager") == "slow" {
			<-req.Context().Done()
			return
		}
		w.WriteHeader(http.StatusCreated)
	}
	other := standby(t)
	c.leads(other)
	slow := background(func() answer {
		return other.do(t, http.MethodPost, coreEvents+"?fieldManager=slow&timeout=1s", classic("a", 1))
	})
	until(t, "the slow request is sent", func() bool { return len(c.requests()) == 1 })
	for range 10 {
		if a := other.post(t, classic("b", 1)); a.code != 201 {
			t.Errorf("answered %d: %s", a.code, a.body)
		}
	}
	select {
	case a := <-slow:
		t.Errorf("the slow one was answered first: %d", a.code)
	default:
	}
	(<-slow).want(t, 504, metav1.StatusReasonTimeout)
	if got := c.connections.Load(); got != 1 {
		t.Errorf("%d connections", got)
	}
}

func TestRequestOfAClientThatGoesAwayEndsAtTheLeader(t *testing.T) {
	c := newCapture(t)
	ended := make(chan struct{})
	c.answer = func(_ http.ResponseWriter, req *http.Request) {
		<-req.Context().Done()
		close(ended)
	}
	other := standby(t)
	c.leads(other)
	ctx, cancel := context.WithCancel(t.Context())
	gone := background(func() answer { return other.doUntil(ctx, t, http.MethodPost, coreEvents, classic("a", 1)) })
	until(t, "it is sent", func() bool { return len(c.requests()) == 1 })
	cancel()
	<-gone
	<-ended
}

func TestRequestIsPassedOnOnce(t *testing.T) {
	c := newCapture(t)
	other := standby(t)
	c.leads(other)
	other.post(t, classic("a", 1))
	second := standby(t)
	third := newCapture(t)
	third.leads(second)
	a := second.do(t, http.MethodPost, coreEvents, classic("a", 1),
		"Authorization", "Bearer "+peerToken, "Eventd-Asserted-User", c.requests()[0].header.Get("Eventd-Asserted-User"))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if a.header.Get("Eventd-Not-Leading") != "true" || a.header.Get("Retry-After") != "1" {
		t.Errorf("header %v", a.header)
	}
	if got := third.requests(); len(got) > 0 {
		t.Errorf("passed on to a third: %+v", got)
	}
}

// That one tells replicas, and nobody else.
func TestClientIsNotToldThatTheLeaderDoesNotLead(t *testing.T) {
	second := standby(t)
	other := standbyWith(t, written(), replicaOptions{park: 100 * time.Millisecond})
	listenTLS(t, second).leads(other)
	until(t, "they are connected", func() bool {
		other.post(t, classic("a", 1)).want(t, 503, metav1.StatusReasonServiceUnavailable)
		return other.metric(t, "eventd_relay_retries_total", "not_leading") > 0
	})
	before := other.metric(t, "eventd_relay_refused_total", "not_leading")
	a := other.post(t, classic("a", 1))
	a.want(t, 503, metav1.StatusReasonServiceUnavailable)
	if _, told := a.header["Eventd-Not-Leading"]; told || a.header.Get("Retry-After") != "1" {
		t.Errorf("header %v", a.header)
	}
	if got := other.metric(t, "eventd_relay_refused_total", "not_leading") - before; got != 1 {
		t.Errorf("%v refused", got)
	}
}

func TestRequestWaitsForALeaderThatDoesNotAcceptYet(t *testing.T) {
	leader := standby(t)
	other := standbyWith(t, written(), replicaOptions{park: time.Minute})
	listenTLS(t, leader).leads(other)
	large := classic("a", 1)
	large.Message = strings.Repeat("x", 500_000) // it is refused while the body is still on its way
	request := background(func() answer { return other.post(t, large) })
	until(t, "it was refused", func() bool { return other.metric(t, "eventd_relay_retries_total", "not_leading") > 0 })
	leader.lead(t)
	(<-request).want(t, 201, "")
	if got := leader.pipeline.occurrences(); len(got) != 1 || got[0].Event.Message != large.Message {
		t.Errorf("recorded %d times", len(got))
	}
	leader.stopLeading(nil)
}

func TestParkedRequestGoesToTheNextLeader(t *testing.T) {
	former, next := standby(t), standby(t)
	formerAt, nextAt := listenTLS(t, former), listenTLS(t, next)
	other := standbyWith(t, written(), replicaOptions{park: time.Minute})
	next.lead(t)
	defer func() { next.stopLeading(nil) }()
	parked := func(name string, prepare func()) <-chan answer {
		prepare()
		name = strings.ReplaceAll(name, " ", "-")
		request := background(func() answer { return other.post(t, classic(name, 1)) })
		until(t, "it is parked", func() bool { return other.metric(t, "eventd_relay_parked") == 1 })
		return request
	}
	for name, prepare := range map[string]func(){
		"nobody leads":               func() { other.relay.SetLeader("", "") },
		"the former one has stopped": func() { formerAt.leads(other) },
		"the former one is gone":     func() { other.relay.SetLeader("127.0.0.1:1", formerAt.fingerprint()) },
		"announced without a certificate": func() {
			other.relay.SetLeader(nextAt.address(), "")
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := len(next.pipeline.occurrences())
			request := parked(name, prepare)
			nextAt.leads(other)
			(<-request).want(t, 201, "")
			if got := len(next.pipeline.occurrences()); got != before+1 {
				t.Errorf("recorded %d times", got-before)
			}
		})
	}
	t.Run("this one leads", func(t *testing.T) {
		request := parked("here", func() { formerAt.leads(other) })
		other.relay.SetLeader("", "")
		other.lead(t)
		(<-request).want(t, 201, "")
		if got := len(other.pipeline.occurrences()); got != 1 {
			t.Errorf("recorded %d times", got)
		}
		other.stopLeading(nil)
	})
}

// As client-go's rest client, which does not ask for an eleventh time.
func TestClientsWaitForLongerTheLongerNobodyLeads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		ask := func() (seconds int) {
			a := r.post(t, classic("a", 1))
			a.want(t, 503, metav1.StatusReasonServiceUnavailable)
			seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
			if err != nil {
				t.Error(err)
			}
			return seconds
		}
		begun := time.Now()
		var waits []int
		for range 11 {
			waits = append(waits, ask())
			time.Sleep(time.Duration(waits[len(waits)-1]) * time.Second)
		}
		if !slices.IsSorted(waits) || waits[0] != 1 || waits[10] != 10 || time.Since(begun) < time.Minute {
			t.Errorf("asked to wait for %v s, %s in all", waits, time.Since(begun))
		}
		ended := r.lead(t)
		r.post(t, classic("a", 1)).want(t, 201, "")
		r.stopLeading(nil)
		<-ended
		if got := ask(); got != 1 {
			t.Errorf("asked to wait for %d s by one that has just led", got)
		}
	})
}

func TestLeaderIsAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := alone(t, written(), nil)
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		r.relay.SetLeader("127.0.0.1:1", "") // nothing can be passed on to it
		if err := r.relay.AwaitLeader(soon); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("nobody leads: %v", err)
		}
		time.AfterFunc(time.Minute, func() { r.relay.SetLeader("127.0.0.1:1", "of another replica") })
		for range 2 { // whether it is known already or not
			if err := r.relay.AwaitLeader(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestReviewsOfPeerTokensAreCached(t *testing.T) {
	reviews := newReviews(t)
	leader := standbyWith(t, written(), replicaOptions{reviewer: reviewer(t, reviews.URL)})
	other := standby(t)
	listenTLS(t, leader).leads(other)
	leader.lead(t)
	defer leader.stopLeading(nil)
	for i := range 20 {
		other.post(t, classic(fmt.Sprint("a", i), 1)).want(t, 201, "")
	}
	if got := reviews.asked.Load(); got != 1 {
		t.Errorf("the apiserver was asked %d times", got)
	}
}

func TestMetricsOfTheRelayAreThereFromTheStart(t *testing.T) {
	other := standby(t)
	want := `# HELP eventd_relay_parked Requests waiting for a leader.
# TYPE eventd_relay_parked gauge
eventd_relay_parked 0
# HELP eventd_relay_refused_total Requests that this replica answered 503, or 504 (timeout), instead of the leader, by reason.
# TYPE eventd_relay_refused_total counter
eventd_relay_refused_total{reason="lost"} 0
eventd_relay_refused_total{reason="no_leader"} 0
eventd_relay_refused_total{reason="no_token"} 0
eventd_relay_refused_total{reason="not_leading"} 0
eventd_relay_refused_total{reason="timeout"} 0
eventd_relay_refused_total{reason="unauthorized"} 0
eventd_relay_refused_total{reason="unreachable"} 0
# HELP eventd_relay_requests_total Forwarded requests that the leader answered, by HTTP status code.
# TYPE eventd_relay_requests_total counter
eventd_relay_requests_total{code="200"} 0
eventd_relay_requests_total{code="201"} 0
eventd_relay_requests_total{code="202"} 0
# HELP eventd_relay_retries_total Forwarding attempts without effect, by reason. The request waits for a leader.
# TYPE eventd_relay_retries_total counter
eventd_relay_retries_total{reason="not_leading"} 0
eventd_relay_retries_total{reason="unreachable"} 0
`
	if err := testutil.GatherAndCompare(other.registry, strings.NewReader(want),
		"eventd_relay_parked", "eventd_relay_refused_total", "eventd_relay_requests_total", "eventd_relay_retries_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(other.registry); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
}

func TestRelayOptionsAreChecked(t *testing.T) {
	valid := intake.DefaultRelayOptions()
	valid.Gate, valid.TokenFile, valid.Audience, valid.Reviewer = intake.NewGate(always, time.Hour), "token", peerAudience, reviewer(t, "http://127.0.0.1:1")
	if r, err := intake.NewRelay(valid); err != nil {
		t.Fatal(err)
	} else {
		r.Close()
	}
	for want, spoil := range map[string]func(*intake.RelayOptions){
		"gate is required":       func(o *intake.RelayOptions) { o.Gate = nil },
		"token file is required": func(o *intake.RelayOptions) { o.TokenFile = "" },
		"audience is required":   func(o *intake.RelayOptions) { o.Audience = "" },
		"reviewer of tokens":     func(o *intake.RelayOptions) { o.Reviewer = nil },
		"time to park":           func(o *intake.RelayOptions) { o.Park = 0 },
		"leader is unreachable":  func(o *intake.RelayOptions) { o.UnreachableAfter = 0 },
	} {
		o := valid
		spoil(&o)
		if _, err := intake.NewRelay(o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v", want, err)
		}
	}
	registered := standby(t)
	valid.Registerer = registered.registry
	if _, err := intake.NewRelay(valid); err == nil {
		t.Error("registered twice")
	}
}
