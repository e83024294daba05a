package relay_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

const sessionRequests = "eventd_relay_session_requests_total"

// forward keeps a forwarding session until stop is called, or the test ends.
func (r *replica) forward(t testing.TB) (stop func()) {
	t.Helper()
	if err := r.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.relay.Forward(ctx)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

// paired is pair, with a session.
func paired(t testing.TB, leads, forwards options) (leader, other *replica, where *listening) {
	t.Helper()
	leader, other, where = pair(t, leads, forwards)
	other.forward(t)
	other.awaitSession(t)
	return leader, other, where
}

func (r *replica) awaitSession(t testing.TB) {
	t.Helper()
	await.Until(t, "there is a session", r.relay.HasSession)
}

func TestLeaderRecordsWhatComesInASession(t *testing.T) {
	leader, other, where := paired(t, options{}, options{})
	before := where.connections.Load()
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	other.Patch(t, "a", `{"count":3}`).Want(t, 200, "")
	other.Do(t, http.MethodPut, coreEvents+"/b", classic("b", 1)).Want(t, 201, "")
	other.Do(t, http.MethodPost, newEvents, fmt.Sprintf(newStyleJSON, "c")).Want(t, 201, "")
	leader.Pipeline.WantWeights(t, 1, 2, 1, 1)
	other.WantMetric(t, 4, sessionRequests)
	other.WantMetric(t, 3, "eventd_relay_requests_total", "201")
	if where.connections.Load() != before {
		t.Error("another connection is made")
	}
}

func TestAnswerInASessionIsThatOfTheLeader(t *testing.T) {
	leader, other, _ := paired(t, options{}, options{leaderWait: time.Minute})
	leader.Post(t, classic("a", 1)).Want(t, 201, "")
	n := 0
	for name, header := range map[string][]string{
		"json":      {"Accept", "application/json"},
		"yaml":      {"Accept", "application/yaml"},
		"protobuf":  {"Accept", "application/vnd.kubernetes.protobuf"},
		"table":     {"Accept", "application/json;as=Table;v=v1;g=meta.k8s.io"},
		"not known": {"Accept", "text/plain"},
		"content":   {"Content-Type", "text/plain"},
	} {
		for _, query := range []string{"", "?dryRun=All", "?dryRun=Some", "?fieldValidation=Strict&pretty=1", "?timeout=5s"} {
			for what, event := range map[string]any{"known": classic("a", 1), "unknown field": `{"metadata":{"name":"b"},"sauce":1}`, "no JSON": "{"} {
				t.Run(name+query+what, func(t *testing.T) {
					want := leader.Do(t, http.MethodPost, coreEvents+query, event, header...)
					got := other.Do(t, http.MethodPost, coreEvents+query, event, header...)
					for _, volatile := range []string{"Audit-Id", "Date", "Content-Length"} {
						got.Header.Del(volatile)
						want.Header.Del(volatile)
					}
					if diff := gocmp.Diff(want, got); diff != "" {
						t.Errorf("answers differ (-leader +standby):\n%s", diff)
					}
				})
				n++
			}
		}
	}
	other.WantMetric(t, float64(n), sessionRequests)
}

func TestStandbyForwardsNothingInASessionThatItDoesNotAuthorize(t *testing.T) {
	leader, other, _ := paired(t, options{}, options{set: authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionNoOpinion, "", nil
	})})
	other.Post(t, classic("a", 1)).Want(t, 403, metav1.StatusReasonForbidden)
	leader.Pipeline.WantRecorded(t, 0)
	other.WantMetric(t, 0, sessionRequests)
}

// Headers between replicas, those of a connection and credentials of a client end at the standby.
func TestClientAssertsNothingInASession(t *testing.T) {
	got := make(chan *frame.Forwarded, 1)
	other := newReplica(t, options{})
	rawLeader(t, func(s *rawSession) {
		for {
			kind, id, payload, err := s.frames.Next()
			if err != nil {
				return
			}
			if kind == frame.Request {
				got <- must(frame.DecodeRequest(payload))
				s.answer(id, 201, "{}")
			}
		}
	}).leads(other)
	other.forward(t)
	other.awaitSession(t)
	other.Do(t, http.MethodPost, coreEvents+"?fieldManager=me&timeout=5s", classic("a", 1), "Authorization", "Bearer of-a-client",
		"Eventd-Not-Leading", "true", "Eventd-Else", "x", "Audit-Id", "1",
		"Connection", "X-Hop, close", "X-Hop", "1", "Te", "trailers", "X-Other", "kept").Want(t, 201, "")
	f := <-got
	want := http.Header{"Audit-Id": {"1"}, "X-Other": {"kept"}, "Content-Type": {"application/json"}}
	if diff := gocmp.Diff(want, f.Header); diff != "" {
		t.Errorf("headers (-want +got):\n%s", diff)
	}
	if f.User.GetName() != "tester" || f.Method != http.MethodPost || f.URI != coreEvents+"?fieldManager=me&timeout=5s" || f.Timeout <= 0 || f.Timeout > 5*time.Second {
		t.Errorf("forwarded %+v", f)
	}
	id := other.Post(t, classic("b", 1)).Header["Audit-Id"]
	if diff := gocmp.Diff(id, (<-got).Header["Audit-Id"]); diff != "" || len(id) != 1 { // in the logs of both
		t.Errorf("Audit-Id (-standby +leader):\n%s", diff)
	}
}

// A client with such a header is taken for a replica, which it is not.
func TestClientThatAssertsAUserIsRejected(t *testing.T) {
	leader, other, _ := paired(t, options{}, options{})
	other.Do(t, http.MethodPost, coreEvents, classic("a", 1), "Eventd-Asserted-User", must(intake.EncodeUser(&user.DefaultInfo{Name: "admin"}))).
		Want(t, 401, metav1.StatusReasonUnauthorized)
	leader.Pipeline.WantRecorded(t, 0)
}

func TestRequestEndsAtTheLeaderWhenItsClientHasGone(t *testing.T) {
	leader, other, _ := paired(t, options{pipeline: kept()}, options{})
	gone, leave := leaving(t, other)
	<-leader.Pipeline.Recorded
	leader.Pipeline.Becomes(written())
	leave()
	<-gone
	await.Until(t, "nothing is in the session", func() bool { return other.relay.InSession() == 0 })
	other.Post(t, classic("after", 1)).Want(t, 201, "")
	other.WantMetric(t, 2, sessionRequests)
}

func TestLargeRequestIsForwardedOverHTTP2(t *testing.T) {
	leader, other, _ := paired(t, options{}, options{})
	large := classic("a", 1)
	large.Annotations = map[string]string{"a": strings.Repeat("x", frame.MaxBytes)}
	other.Post(t, large).Want(t, 201, "")
	other.WantMetric(t, 0, sessionRequests)
	leader.Pipeline.WantRecorded(t, 1)
	// The answer to a patch of it is in many frames.
	patched := other.Patch(t, "a", `{"count":2}`)
	patched.Want(t, 200, "")
	if got := len(patched.Event(t).Annotations["a"]); got != frame.MaxBytes {
		t.Errorf("%d bytes of it arrive", got)
	}
	other.WantMetric(t, 1, sessionRequests)
}

// What a lost connection means over HTTP/2, a lost session means for each of its requests.
func TestLostSessionLosesTheAnswersOfItsRequests(t *testing.T) {
	other := newReplica(t, options{leaderWait: time.Minute})
	const requests = 10
	sessions := 0
	rawLeader(t, func(s *rawSession) {
		sessions++
		if sessions > 1 {
			<-t.Context().Done()
			return
		}
		for n := 0; n < requests; {
			kind, _, _, err := s.frames.Next()
			if err != nil {
				t.Error(err)
				return
			}
			if kind == frame.Request {
				n++
			}
		}
	}).leads(other)
	stop := other.forward(t)
	other.awaitSession(t)
	var answers []<-chan answer
	for i := range requests {
		answers = append(answers, background(func() answer {
			event := classic(fmt.Sprint("a-", i), 1)
			if i == 0 {
				event.Name, event.GenerateName = "", "a-"
			}
			return other.Post(t, event)
		}))
	}
	for i, answered := range answers {
		if a := <-answered; i > 0 {
			wantUnavailable(t, a)
		} else {
			a.Want(t, 504, metav1.StatusReasonTimeout) // another name would be another Event
		}
	}
	other.WantMetric(t, requests, "eventd_relay_refused_total", "lost")
	stop()
}

func TestLeaderThatDropsARequestHasNotAnsweredIt(t *testing.T) {
	other := newReplica(t, options{})
	rawLeader(t, func(s *rawSession) {
		for {
			kind, id, _, err := s.frames.Next()
			if err != nil {
				return
			}
			if kind == frame.Request {
				abort := frame.Begin(nil, frame.Abort, id)
				frame.End(abort, 0)
				s.send(abort)
			}
		}
	}).leads(other)
	other.forward(t)
	other.awaitSession(t)
	other.wantRefused(t, other.Post(t, classic("a", 1)), "lost")
}

// A process that is stopped keeps its connections, on which it writes nothing.
func TestSessionWithASilentLeaderIsLost(t *testing.T) {
	stopped := make(chan struct{})
	other := newReplica(t, options{leaderWait: time.Minute})
	leader := newReplica(t, options{pipeline: kept()})
	where := listen(t, leader, mutedAt(stopped))
	leader.lead(t)
	where.leads(other)
	other.forward(t)
	other.awaitSession(t)
	close(stopped)
	begun := time.Now()
	other.wantRefused(t, other.Post(t, classic("b", 1)), "lost")
	if waited := time.Since(begun); waited > 8*time.Second { // of a deadline of 60 s
		t.Errorf("answered after %s", waited)
	}
	await.Until(t, "the session has ended", func() bool { return !other.relay.HasSession() })
}

// The former leader answers what it has, and the next one gets the rest.
func TestSessionOfAFormerLeaderEndsWithItsLastAnswer(t *testing.T) {
	first, other, _ := paired(t, options{pipeline: kept()}, options{})
	hanging := background(func() answer { return other.Post(t, classic("hangs", 1)) })
	o := <-first.Pipeline.Recorded
	second := newReplica(t, options{})
	where := listen(t, second, withAnotherCertificate(t))
	second.lead(t)
	where.leads(other)
	await.Until(t, "there is a session", func() bool { return other.relay.HasSession() && other.relay.InSession() == 0 })
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	second.Pipeline.WantRecorded(t, 1)
	o.Settled(stored(occurrence.Created, 1))
	(<-hanging).Want(t, 201, "")
}

// The leader does not lead: the request has had no effect.
func TestRequestInASessionIsSentAgainToTheNextLeader(t *testing.T) {
	first, other, _ := paired(t, options{}, options{leaderWait: time.Minute})
	first.resign()
	waiting := background(func() answer { return other.Post(t, classic("a", 1)) })
	await.Until(t, "it is sent", func() bool { return other.Metric(t, "eventd_relay_retries_total", "not_leading") > 0 })
	second := newReplica(t, options{})
	where := listen(t, second, withAnotherCertificate(t))
	second.lead(t)
	where.leads(other)
	(<-waiting).Want(t, 201, "")
	second.Pipeline.WantRecorded(t, 1)
	first.Pipeline.WantRecorded(t, 0)
}

// Otherwise the leader ends it, with its requests, when the token has expired.
func TestSessionIsReplacedWhenTheTokenIs(t *testing.T) {
	const next = "next-token"
	apiserver := reviewing(t, func(r *authenticationv1.TokenReview) authenticationv1.TokenReviewStatus {
		return asPeer(r.Spec.Token == peerToken || r.Spec.Token == next)
	})
	leader := newReplica(t, options{apiserver: apiserver.URL})
	where := listen(t, leader)
	leader.lead(t)
	path := tokenFile(t, peerToken)
	other := newReplica(t, options{token: path, apiserver: apiserver.URL})
	where.leads(other)
	other.forward(t)
	other.awaitSession(t)
	asked, before := apiserver.asked.Load(), where.connections.Load()
	rotate(t, path, next)
	await.Until(t, "there is another session", func() bool {
		return where.connections.Load() > before && apiserver.asked.Load() > asked && other.relay.HasSession()
	})
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	other.WantMetric(t, 1, sessionRequests)
}

// A release without sessions is forwarded to as before.
func TestLeaderWithoutForwardingSessionsGetsRequestsOverHTTP2(t *testing.T) {
	leader := newReplica(t, options{})
	tried := make(chan struct{}, 100)
	where := listen(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == intake.ForwardingPath {
			tried <- struct{}{}
			w.WriteHeader(http.StatusForbidden)
			return
		}
		leader.ServeHTTP(w, req)
	}))
	leader.lead(t)
	other := newReplica(t, options{})
	where.leads(other)
	other.forward(t)
	<-tried
	await.Until(t, "its connection is closed", func() bool { return where.open.Load() == 0 })
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	other.WantMetric(t, 0, sessionRequests)
	if len(tried) > 0 {
		t.Error("it is tried again at once")
	}
}
