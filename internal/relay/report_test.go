package relay_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/internal/relay"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/intaketest"
)

// reports are those that a leader has accepted.
type reports chan string

// accepting is a setting of a replica that accepts reports.
func (r reports) accepting(_ *intake.Options, o *intake.ServerOptions) {
	o.ReplicaState = func(replica string, state []byte) error {
		if string(state) == "bad" {
			return errors.New("bad")
		}
		r <- replica + " " + string(state)
		return nil
	}
}

func (r reports) next(t testing.TB) string {
	t.Helper()
	select {
	case report := <-r:
		return report
	case <-time.After(await.Timeout):
		t.Fatal("no report arrives")
		return ""
	}
}

// report has a replica report until stop is called, or the test ends.
func (r *replica) report(t testing.TB, state func() []byte) (stop func()) {
	t.Helper()
	if err := r.relay.ReviewToken(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.relay.Report(ctx, state)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		<-ended
	})
	t.Cleanup(stop)
	return stop
}

func TestLeaderIsToldHowAReplicaIs(t *testing.T) {
	first, second := make(reports, 100), make(reports, 100)
	_, other, _ := pair(t, options{set: first.accepting}, options{})
	var state atomic.Value
	state.Store("well")
	stop := other.report(t, func() []byte { return []byte(state.Load().(string)) })
	if got := first.next(t); got != "me well" {
		t.Errorf("the first report is %q", got)
	}
	// The next leader is told at once.
	next := newReplica(t, options{set: second.accepting})
	where := listen(t, next)
	next.lead(t)
	changed := time.Now()
	where.leads(other)
	second.next(t)
	if took := time.Since(changed); took >= relay.ReportPeriod {
		t.Errorf("the next leader is told after %s", took)
	}
	state.Store("ending")
	stop()
	last := ""
	for len(second) > 0 {
		last = second.next(t)
	}
	if last != "me ending" {
		t.Errorf("the last report is %q", last)
	}
}

// The others are requests to a path that is not served, which the authorizer decides about.
func TestReportIsThatOfAReplica(t *testing.T) {
	accepted := make(reports, 100)
	// A client may have any extra, by its token or its certificate.
	client := intaketest.Authenticated(&user.DefaultInfo{Name: "jane", Extra: map[string][]string{intake.ReplicaExtra: {"other"}}})
	leader, _, _ := pair(t, options{set: func(i *intake.Options, o *intake.ServerOptions) {
		accepted.accepting(i, o)
		client(i, o)
	}}, options{})
	self := `{"username":"` + peerUser + `","extra":{"eventd.io/replica":["other"]}}`
	for name, test := range map[string]struct {
		method, body string
		header       []string
		want         int
	}{
		"a replica":        {http.MethodPost, "well", asserting(peerToken, self), http.StatusNoContent},
		"bad":              {http.MethodPost, "bad", asserting(peerToken, self), http.StatusBadRequest},
		"too large":        {http.MethodPost, strings.Repeat("x", 8<<10+1), asserting(peerToken, self), http.StatusBadRequest},
		"without a name":   {http.MethodPost, "well", asserting(peerToken, `{"username":"`+peerUser+`"}`), http.StatusNotFound},
		"a read":           {http.MethodGet, "", asserting(peerToken, self), http.StatusNotFound},
		"a client":         {http.MethodPost, "well", nil, http.StatusNotFound},
		"another's token":  {http.MethodPost, "well", asserting("stolen", self), http.StatusUnauthorized},
		"no token at all ": {http.MethodPost, "well", asserting("", self), http.StatusUnauthorized},
	} {
		if a := leader.Do(t, test.method, intake.ReplicaStatePath, test.body, test.header...); a.Code != test.want {
			t.Errorf("%s is answered %d, not %d: %s", name, a.Code, test.want, a.Body)
		}
	}
	if got := accepted.next(t); got != "other well" || len(accepted) > 0 {
		t.Errorf("accepted are %q and %d more", got, len(accepted))
	}
}

// A leader that refuses reports, or never answers, holds up nothing.
func TestReportWaitsForNoLeader(t *testing.T) {
	hangs := http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { <-req.Context().Done() })
	for name, leader := range map[string]http.Handler{"refuses": newReplica(t, options{}), "hangs": hangs} {
		t.Run(name, func(t *testing.T) {
			asked := make(chan struct{}, 100)
			other := newReplica(t, options{})
			listen(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
				asked <- struct{}{}
				leader.ServeHTTP(w, req)
			})).leads(other)
			stop := other.report(t, func() []byte { return nil })
			<-asked
			began := time.Now()
			stop()
			if took := time.Since(began); took > relay.ReportPeriod {
				t.Errorf("the end takes %s", took)
			}
		})
	}
}
