package relay_test

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

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
func pair(t testing.TB, settings ...setting) (leader, other *replica, where *listening) {
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

func TestTooLargeABodyIsNotForwarded(t *testing.T) {
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

func TestRequestIsForwardedOnce(t *testing.T) {
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
		t.Errorf("forwarded to a third: %+v", got)
	}
}

// That one tells replicas, and nobody else.
func TestClientIsNotToldThatTheLeaderDoesNotLead(t *testing.T) {
	second := standby(t)
	other := standbyWith(t, written(), replicaOptions{leaderWait: 100 * time.Millisecond})
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
