package intake_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// oneConnection is a setting of a replica that has one connection to the leader.
func oneConnection(_ *intake.Options, o *intake.ServerOptions) { o.MaxInFlight = 100 }

// One has ids for 2^30 requests.
func TestConnectionThatHasTakenAllItsRequestsIsReplacedAndClosed(t *testing.T) {
	leader := standbyWith(t, kept(), replicaOptions{})
	other := standbyWith(t, written(), replicaOptions{park: time.Minute}, oneConnection)
	where := listenTLS(t, leader)
	where.leads(other)
	other.relay.ReplaceConnectionsAfter(2)
	ended := leader.lead(t)
	requests := make([]<-chan answer, 3)
	recorded := make([]*occurrence.Occurrence, len(requests))
	for i := range requests {
		requests[i] = background(func() answer { return other.post(t, classic(fmt.Sprint("a", i), 1)) })
		recorded[i] = <-leader.pipeline.recorded
	}
	if made, open := where.connections.Load(), where.open.Load(); made != 2 || open != 2 {
		t.Errorf("%d connections were made, and %d are open, while all three requests are in flight", made, open)
	}
	for i, request := range requests {
		recorded[i].Settled(stored(occurrence.Created, i))
		(<-request).want(t, 201, "")
	}
	until(t, "the first connection is closed", func() bool { return where.open.Load() == 1 })
	leader.stopLeading(nil)
	<-ended
}

func TestRequestMeetsAConnectionThatEndedBeforeItWasUsed(t *testing.T) {
	for name, happens := range map[string]func(*http2.ClientConn){
		"closed":         func(conn *http2.ClientConn) { _ = conn.Close() },
		"about to close": (*http2.ClientConn).SetDoNotReuse,
		"shut down":      func(conn *http2.ClientConn) { _ = conn.Shutdown(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			leader := standby(t)
			other := standbyWith(t, written(), replicaOptions{park: time.Minute}, oneConnection)
			where := listenTLS(t, leader)
			where.leads(other)
			ended := leader.lead(t)
			other.relay.NewConnection(happens)
			unnamed := classic("", 1) // which is not sent again if it may have been recorded
			unnamed.GenerateName = "a-"
			other.do(t, http.MethodPost, coreEvents, unnamed).want(t, 201, "")
			until(t, "the connection is closed", func() bool { return where.open.Load() == 1 })
			if got := where.connections.Load(); got != 2 {
				t.Errorf("%d connections", got)
			}
			leader.stopLeading(nil)
			<-ended
		})
	}
}
