package relay_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/internal/relay/frame"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/intaketest"
)

// A right is reviewed where the caller was authenticated. What only the leader finds out to
// need is reviewed by the leader, for the same caller.
func TestLeaderReviewsNoRightThatTheStandbyHasReviewed(t *testing.T) {
	caller := &user.DefaultInfo{
		Name: "Jörg, \"the user\"\n", UID: "uid/1", Groups: []string{"system:authenticated", "Ops; all", "ops", ""},
		Extra: map[string][]string{"authentication.kubernetes.io/pod-name": {"web-0"}, "Upper Case%": {"a, b", "", "ü"}},
	}
	var verbs []string
	var asked []user.Info
	leader, other, _ := paired(t, options{set: authorized(func(a authorizer.Attributes) (authorizer.Decision, string, error) {
		verbs, asked = append(verbs, a.GetVerb()), append(asked, a.GetUser())
		return authorizer.DecisionAllow, "", nil
	})}, options{set: intaketest.Authenticated(caller)})
	other.Post(t, classic("a", 1)).Want(t, 201, "")
	other.Do(t, http.MethodPut, coreEvents+"/b", classic("b", 1)).Want(t, 201, "")
	if diff := gocmp.Diff([]string{"patch", "update", "create"}, verbs); diff != "" {
		t.Errorf("the leader reviews (-want +got):\n%s", diff)
	}
	if diff := gocmp.Diff([]user.Info{caller, caller, caller}, asked); diff != "" {
		t.Errorf("of (-want +got):\n%s", diff)
	}
	for _, o := range leader.Pipeline.Occurrences() {
		if o.User != caller.Name {
			t.Errorf("recorded for %q", o.User)
		}
	}
}

func TestOnlyAReplicaOpensASession(t *testing.T) {
	leader := newReplica(t, options{})
	where := listen(t, leader)
	leader.lead(t)
	asserted := must(intake.EncodeUser(&user.DefaultInfo{Name: peerUser}))
	for name, test := range map[string]struct {
		header []string
		code   int
	}{
		"a replica":                     {[]string{"Authorization", "Bearer " + peerToken, "Eventd-Asserted-User", asserted}, 101},
		"nobody":                        {[]string{intaketest.WithoutToken, "true"}, 401},
		"a client":                      {[]string{"Authorization", "Bearer of-the-tester"}, 404},
		"a client that asserts":         {[]string{"Authorization", "Bearer of-the-tester", "Eventd-Asserted-User", asserted}, 401},
		"a replica that asserts nobody": {[]string{"Authorization", "Bearer " + peerToken, "Eventd-Asserted-User", "bm9ib2R5"}, 401},
	} {
		t.Run(name, func(t *testing.T) {
			if _, code := openRaw(t, where, test.header...); code != test.code {
				t.Errorf("answered %d, want %d", code, test.code)
			}
		})
	}
}

// Nothing but a report is authorized where it comes from.
func TestSessionIsForReportsOnly(t *testing.T) {
	leader := newReplica(t, options{set: func(_ *intake.Options, o *intake.ServerOptions) {
		o.Metrics = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("metrics are read") })
	}})
	where := listen(t, leader)
	leader.lead(t)
	s := asPeerSession(t, where)
	for id, f := range []frame.Forwarded{
		{Method: http.MethodGet, URI: "/metrics"},
		{Method: http.MethodGet, URI: coreEvents},
		{Method: http.MethodPost, URI: intake.ForwardingPath},
		{Method: http.MethodPost, URI: intake.ReplicaStatePath},
		{Method: http.MethodDelete, URI: coreEvents + "/a"},
		{Method: http.MethodPost, URI: "/api/v1/namespaces/ns/pods"},
		{Method: http.MethodPost, URI: coreEvents + "/a/status"},
		{Method: http.MethodPost, URI: "%"},
	} {
		s.send(encoded(uint64(id), f))
		code := s.wantAnswer(t, uint64(id))
		if code != 404 && code != 400 {
			t.Errorf("%s %s is answered %d", f.Method, f.URI, code)
		}
	}
	leader.Pipeline.WantRecorded(t, 0)
}

func TestReplicaThatBreaksTheProtocolLosesItsSession(t *testing.T) {
	leader := newReplica(t, options{pipeline: kept()})
	where := listen(t, leader)
	leader.lead(t)
	// It is not answered, since its occurrence is not written.
	post := frame.Forwarded{Method: http.MethodPost, URI: coreEvents, Body: must(json.Marshal(classic("a", 1)))}
	unnamed := post
	unnamed.User = &user.DefaultInfo{}
	long := frame.Begin(nil, frame.Request, 1)
	frame.End(long, 0)
	long[0] = 1
	for name, sent := range map[string][]byte{
		"an id twice":        append(encoded(1, post), encoded(1, post)...),
		"nobody is asserted": encoded(1, unnamed),
		"no request":         {0, 0, 0, 10, byte(frame.Request), 0, 0, 0, 0, 0, 0, 0, 1, 1},
		"an answer":          {0, 0, 0, 9, byte(frame.Answer), 0, 0, 0, 0, 0, 0, 0, 1},
		"a long frame":       long,
		"a short frame":      {0, 0, 0, 1, byte(frame.Ping), 0, 0, 0, 0, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := asPeerSession(t, where)
			s.send(sent)
			began := time.Now()
			for {
				kind, _, _, err := s.frames.Next()
				if err != nil {
					break
				}
				if kind != frame.Ping && kind != frame.Answer {
					t.Fatalf("frame %d", kind)
				}
			}
			if took := time.Since(began); took > frame.Silence/2 {
				t.Errorf("it has ended after %s, since nothing more was sent", took)
			}
		})
	}
}

// A name is kept locked by an occurrence that is not written.
func TestHangingRequestDelaysNoOtherInItsSession(t *testing.T) {
	leader, other, _ := paired(t, options{pipeline: kept()}, options{})
	hanging := background(func() answer { return other.Post(t, classic("hangs", 1)) })
	o := <-leader.Pipeline.Recorded
	leader.Pipeline.Becomes(written())
	for i := range 20 {
		other.Post(t, classic(fmt.Sprint("a-", i), 1)).Want(t, 201, "")
	}
	if len(hanging) > 0 {
		t.Error("it does not hang")
	}
	o.Settled(stored(occurrence.Created, 1))
	(<-hanging).Want(t, 201, "")
}

// Others have their places.
func TestCallerHasItsShareOfTheLeaderInASession(t *testing.T) {
	leader, other, _ := paired(t, options{pipeline: kept(), set: inFlight(6)}, options{})
	var hanging []<-chan answer
	var recorded []*occurrence.Occurrence
	for i := range 2 { // a third, in one namespace
		hanging = append(hanging, background(func() answer { return other.Post(t, classic(fmt.Sprint("a-", i), 1)) }))
		recorded = append(recorded, <-leader.Pipeline.Recorded)
	}
	other.Post(t, classic("b", 1)).Want(t, 429, metav1.StatusReasonTooManyRequests)
	leader.WantMetric(t, 1, "eventd_intake_refused_total", "share")
	for _, o := range recorded {
		o.Settled(stored(occurrence.Created, 1))
	}
	for _, answered := range hanging {
		(<-answered).Want(t, 201, "")
	}
	leader.Pipeline.Becomes(written())
	other.Post(t, classic("c", 1)).Want(t, 201, "") // there is a place
}
