package relay_test

import (
	"encoding/base64"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/intaketest"
)

func TestStandbyHasTheLeaderRecord(t *testing.T) {
	reviews := newReviews(t)
	leader, other, _ := pair(t, options{apiserver: reviews.URL}, options{})
	created := other.Post(t, classic("a", 1))
	created.Want(t, 201, "")
	if event := created.Event(t); event.Name != "a" || event.UID == "" {
		t.Errorf("answered %+v", event)
	}
	other.Patch(t, "a", `{"count":3}`).Want(t, 200, "")
	other.Do(t, http.MethodPut, coreEvents+"/b", classic("b", 1)).Want(t, 201, "")
	other.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "c")).Want(t, 201, "")
	leader.Pipeline.WantWeights(t, 1, 2, 1, 1)
	other.Pipeline.WantRecorded(t, 0)
	leader.Pipeline.WriteLater(true)
	other.Post(t, classic("d", 1)).Want(t, 202, "")
	for code, n := range map[string]float64{"200": 1, "201": 3, "202": 1} {
		other.WantMetric(t, n, "eventd_relay_requests_total", code)
	}
	other.WantMetric(t, 0, "eventd_relay_parked_duration_seconds") // none has waited
	if got := reviews.asked.Load(); got != 1 {
		t.Errorf("the leader had the replica's token reviewed %d times", got)
	}
}

func TestAnswerOfTheLeaderIsGivenAsItIs(t *testing.T) {
	leader, other, _ := pair(t, options{}, options{leaderWait: time.Minute})
	leader.Post(t, classic("a", 1)).Want(t, 201, "")
	for name, header := range map[string][]string{
		"json":      {"Accept", "application/json"},
		"yaml":      {"Accept", "application/yaml"},
		"protobuf":  {"Accept", "application/vnd.kubernetes.protobuf"},
		"table":     {"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		"not known": {"Accept", "text/plain"},
		"content":   {"Content-Type", "text/plain"},
	} {
		for _, query := range []string{"", "?dryRun=All", "?dryRun=Some", "?fieldValidation=Strict&pretty=1"} {
			t.Run(name+query, func(t *testing.T) {
				want := leader.Do(t, http.MethodPost, coreEvents+query, classic("a", 1), header...)
				got := other.Do(t, http.MethodPost, coreEvents+query, classic("a", 1), header...)
				for _, volatile := range []string{"Audit-Id", "Date", "Content-Length"} {
					got.Header.Del(volatile)
					want.Header.Del(volatile)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("answers differ (-leader +standby):\n%s", diff)
				}
			})
		}
	}
}

// It may have had an effect.
func TestUnavailableLeaderIsNotAskedAgain(t *testing.T) {
	c := newCapture(t)
	c.answer = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }
	if a := c.forwards(t, options{}).Post(t, classic("a", 1)); a.Code != 503 {
		t.Errorf("answered %d", a.Code)
	}
	c.wantSent(t, 1)
}

func TestCallerIsAssertedAsItIs(t *testing.T) {
	caller := &user.DefaultInfo{
		Name: "Jörg, \"the user\"\n", UID: "uid/1", Groups: []string{"system:authenticated", "Ops; all", "ops", ""},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"web-0"}, "Upper Case%": {"a, b", "", "ü"}},
	}
	var asked []user.Info
	leader, other, _ := pair(t, options{set: authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		asked = append(asked, a.GetUser())
		return authorizer.DecisionAllow, "", nil
	})}, options{set: intaketest.Authenticated(caller)})
	other.Post(t, classic("a", 1)).Want(t, 201, "")                                // asks for create and patch
	other.Do(t, http.MethodPut, coreEvents+"/b", classic("b", 1)).Want(t, 201, "") // for update, twice, and create
	leader.Post(t, classic("c", 1)).Want(t, 201, "")
	tester := &user.DefaultInfo{Name: "tester"}
	want := []user.Info{caller, caller, caller, caller, caller, tester, tester}
	if diff := cmp.Diff(want, asked); diff != "" {
		t.Errorf("authorized (-want +got):\n%s", diff)
	}
	var users []string
	for _, o := range leader.Pipeline.Occurrences() {
		users = append(users, o.User)
	}
	if diff := cmp.Diff([]string{caller.Name, caller.Name, "tester"}, users); diff != "" {
		t.Errorf("users of the occurrences (-want +got):\n%s", diff)
	}
}

// The standby has authorized the caller already, but the leader records.
func TestLeaderAuthorizesTheAssertedCaller(t *testing.T) {
	leader, other, _ := pair(t, options{set: authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		if a.GetVerb() == "create" {
			return authorizer.DecisionAllow, "", nil
		}
		return authorizer.DecisionNoOpinion, "the leader says so", nil
	})}, options{})
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	if o := leader.Pipeline.Occurrences()[0]; o.User != "tester" || !o.CreateOnly {
		t.Errorf("the leader has recorded user %q, create only %v", o.User, o.CreateOnly)
	}
	a := other.Do(t, http.MethodPut, coreEvents+"/b", classic("b", 1))
	a.Want(t, 403, metav1.StatusReasonForbidden)
	if message := a.Status(t).Message; !strings.Contains(message, `"tester"`) || !strings.Contains(message, "the leader says so") {
		t.Error(message)
	}
}

// An assertion may have 6 KiB, which are decoded for a replica only.
func TestAssertionOfAStrangerIsNotDecoded(t *testing.T) {
	leader := newReplica(t, options{})
	assertion := base64.StdEncoding.EncodeToString([]byte(`{"username":"a","groups":[` + strings.Repeat(`"",`, 1_400) + `""]}`))
	post := func(token string) (allocated uint64) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		leader.Do(t, http.MethodPost, coreEvents, classic("a", 1), "Authorization", "Bearer "+token, "Eventd-Asserted-User", assertion).
			Want(t, 401, metav1.StatusReasonUnauthorized)
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	post("first") // makes what later ones share
	post("rejected")
	for which, token := range map[string]func(i int) string{
		"new":      func(i int) string { return fmt.Sprint("bogus-", i) },
		"rejected": func(int) string { return "rejected" },
	} {
		least := uint64(math.MaxUint64) // other goroutines allocate, too
		for i := range 5 {
			least = min(least, post(token(i)))
		}
		if least > 112<<10 {
			t.Errorf("%s token: %d KiB allocated for an assertion of %d KiB", which, least>>10, len(assertion)>>10)
		}
	}
}

func TestWhatIsSentToTheLeader(t *testing.T) {
	c := newCapture(t)
	other := c.forwards(t, options{})
	other.Do(t, http.MethodPatch, newEvents+"/a%41?fieldManager=x%20y&timeout=20s", `{"note":"x"}`,
		"Authorization", "Bearer of-the-client", "User-Agent", "client/1", "Accept", "application/json", "Audit-Id", "audit-1",
		"Eventd-Not-Leading", "true", "Eventd-Other", "x", "Eventd-Asserted-Other", "x",
		"X-Remote-User", "admin", "Connection", "X-Mine, keep-alive", "X-Mine", "1", "Keep-Alive", "1", "Te", "trailers",
		"Upgrade", "h2c", "Proxy-Authorization", "secret", "Cookie", "a; b")
	second := other.Post(t, classic("a", 1))
	c.wantSent(t, 2)
	s := c.requests()[0]
	if s.Method != http.MethodPatch || s.URL.EscapedPath() != newEvents+"/a%41" || s.body != `{"note":"x"}` || s.Proto != "HTTP/2.0" {
		t.Errorf("sent %+v", s)
	}
	query := s.URL.Query()
	left, err := time.ParseDuration(query.Get("timeout"))
	if err != nil || left >= 20*time.Second || left < 10*time.Second {
		t.Errorf("timeout %s, %v", query.Get("timeout"), err)
	}
	query.Del("timeout")
	if diff := cmp.Diff(url.Values{"fieldManager": {"x y"}}, query); diff != "" {
		t.Errorf("query (-want +got):\n%s", diff)
	}
	asserted := s.Header.Get("Eventd-Asserted-User")
	want := http.Header{
		"Authorization": {"Bearer " + peerToken}, "Eventd-Asserted-User": {asserted}, "User-Agent": {"client/1"},
		"Accept": {"application/json"}, "Audit-Id": {"audit-1"}, "Content-Type": {"application/strategic-merge-patch+json"},
		"Content-Length": {"12"},
	}
	if diff := cmp.Diff(want, s.Header); diff != "" {
		t.Errorf("header (-want +got):\n%s", diff)
	}
	if got := c.requests()[1].Header.Get("User-Agent"); got != "" {
		t.Errorf("a request without a User-Agent is given %q", got)
	}
	if id := c.requests()[1].Header.Get("Audit-Id"); id == "" || id != second.Header.Get("Audit-Id") {
		t.Errorf("the audit ID of the leader is %q, that of the standby %q", id, second.Header.Get("Audit-Id"))
	}
}

func TestTooLargeABodyIsNotForwarded(t *testing.T) {
	small := func(o *intake.Options, _ *intake.ServerOptions) { o.MaxBodyBytes = 2000 }
	large := strings.Repeat("x", 2001)
	c := newCapture(t)
	other := c.forwards(t, options{set: small})
	got := other.Do(t, http.MethodPost, coreEvents, large)
	got.Want(t, 413, metav1.StatusReasonRequestEntityTooLarge)
	want := intaketest.Serve(t, written(), small).Do(t, http.MethodPost, coreEvents, large)
	if got.Status(t).Message != want.Status(t).Message {
		t.Errorf("%q, but the leader says %q", got.Status(t).Message, want.Status(t).Message)
	}
	c.wantSent(t, 0)
	other.Do(t, http.MethodPost, coreEvents, large[1:])
	if got := c.requests(); len(got) != 1 || got[0].body != large[1:] {
		t.Errorf("sent %d times", len(got))
	}
}

func TestRequestIsForwardedOnce(t *testing.T) {
	third := newCapture(t)
	second := third.forwards(t, options{})
	wantNotLeading(t, second.Do(t, http.MethodPost, coreEvents, classic("a", 1), asserting(peerToken, `{"username":"a"}`)...))
	third.wantSent(t, 0)
}

// asserting are the headers of a replica that asserts the caller.
func asserting(token, info string) []string {
	header := []string{"Eventd-Asserted-User", base64.StdEncoding.EncodeToString([]byte(info))}
	if token != "" {
		header = append(header, "Authorization", "Bearer "+token)
	}
	return header
}

// wantNotLeading checks what a replica answers to another one if it does not lead.
func wantNotLeading(t testing.TB, a answer) {
	t.Helper()
	a.Want(t, 503, metav1.StatusReasonServiceUnavailable)
	if a.Header.Get("Eventd-Not-Leading") != "true" || a.Header.Get("Retry-After") != "1" {
		t.Errorf("header %v", a.Header)
	}
}
