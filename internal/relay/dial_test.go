package relay

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/election"
)

func TestWhenAConnectionIsMade(t *testing.T) {
	failed := errors.New("refused")
	for name, test := range map[string]struct {
		open    int // of two connections
		last    error
		ago     time.Duration
		retired bool
		want    error
	}{
		"for the first request":           {ago: time.Hour},
		"when the others are full":        {open: 1, ago: connectPause},
		"not right after another":         {open: 1, ago: connectPause - 1, want: errFull},
		"not more than there may be":      {open: 2, ago: time.Hour, want: errFull},
		"not after the leader is another": {ago: time.Hour, retired: true, want: errRetired},
		"not right after a failure":       {last: failed, ago: connectPause - 1, want: failed},
		"a while after a failure":         {last: failed, ago: connectPause},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConnections(election.Announcement{Address: "127.0.0.1:1", CertificateSHA256: "none"}, 2, &health{})
				c.open, c.dialErr, c.dialEnded = test.open, test.last, time.Now().Add(-test.ago)
				if test.retired {
					c.retire()
				}
				open := test.open
				if test.want == nil {
					open++
				}
				if err := c.beginDial(); err != test.want || c.open != open {
					t.Errorf("%v, and %d are open, want %v", err, c.open, test.want)
				}
			})
		})
	}
}

func TestHowLongARequestWaitsForASlot(t *testing.T) {
	for name, test := range map[string]struct {
		deadline, giveUp time.Duration
		freed            bool
		want             time.Duration
		again            bool
	}{
		"until there is a slot":                    {time.Second, time.Second, true, 0, true},
		"for a moment: there may be a slot":        {time.Second, time.Second, false, minRepeat, true},
		"until it gives up":                        {time.Second, minRepeat / 2, false, minRepeat / 2, false},
		"until its deadline":                       {minRepeat / 2, time.Second, false, minRepeat / 2, false},
		"not, when it should have given up before": {time.Second, -time.Second, false, 0, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newConnections(election.Announcement{Address: "127.0.0.1:1", CertificateSHA256: "none"}, 1, &health{})
				if test.freed {
					c.acquire()
					c.release()
				}
				begun := time.Now()
				ctx, cancel := context.WithDeadline(t.Context(), begun.Add(test.deadline))
				defer cancel()
				again := c.awaitSlot(ctx, begun.Add(test.giveUp))
				if waited := time.Since(begun); again != test.again || waited != test.want {
					t.Errorf("waited for %s, again: %t", waited, again)
				}
			})
		})
	}
}

// Without a pause, a leader that refuses all requests is sent one handshake after the other.
func TestNextConnectionIsMadeAfterAPause(t *testing.T) {
	c := newConnections(election.Announcement{Address: "127.0.0.1:1", CertificateSHA256: "none"}, 1, &health{})
	_, first := c.dial(t.Context(), "", "")
	ended := c.dialEnded
	if _, second := c.dial(t.Context(), "", ""); first == nil || time.Since(ended) < connectPause && second != first {
		t.Errorf("%v, and at once after it %v", first, second)
	}
}

// A connection that has ended, or was never made, counts no more: else a replica would reach no leader in the end.
func TestConnectionThatHasEndedMakesRoomForAnother(t *testing.T) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	at := server.Listener.Addr().String()
	for name, leader := range map[string]election.Announcement{
		"ended":      {Address: at, CertificateSHA256: election.Fingerprint(server.Certificate())},
		"never made": {Address: at, CertificateSHA256: "of another"},
	} {
		c := newConnections(leader, 1, &health{})
		conn, err := c.dial(t.Context(), "", "")
		if (err == nil) != (name == "ended") {
			t.Fatalf("%s: %v", name, err)
		}
		if conn != nil {
			_ = conn.Close()
		}
		if c.open != 0 {
			t.Errorf("%s: %d connections count as open", name, c.open)
		}
		c.retire()
	}
}

// The last attempt is to make another connection, and is given up meanwhile.
func TestRequestThatFoundAllConnectionsInUseFailsForThat(t *testing.T) {
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	c := newConnections(election.Announcement{Address: silent.Addr().String(), CertificateSHA256: "none"}, 1, &health{})
	defer c.retire()
	c.dialEnded = time.Now().Add(500 * time.Millisecond) // a connection is made then, but not in time
	req := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.server.Address, nil)
	if _, err := c.roundTrip(req, time.Now().Add(time.Second)); !errors.Is(err, errNotConnected) || !errors.Is(err, errFull) {
		t.Error(err)
	}
}

// Whoever decides first: nothing is written of a request that was given up.
func TestAttemptIsGivenUpOnlyWhileItWaitsForAConnection(t *testing.T) {
	for name, test := range map[string]struct {
		events string // c: get a connection, g: got one, w: written, x: give up, m: wait for minConnect
		want   error  // why the request is cancelled
		sent   bool
	}{
		"while it waits":                  {"cx", errNoConnection, false},
		"not when it has a connection":    {"cgx", nil, false},
		"not when it is written":          {"cgwx", nil, true},
		"while it waits for another":      {"cgwcx", errNoConnection, false},
		"refused, and written to another": {"cgwcgw", nil, true},
		"refused, and written late":       {"cgcwg", nil, false},
		"not at once":                     {"cm", nil, false},
		"refused later, and waits":        {"cgxcm", errNoConnection, false},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			a := &attempt{cancel: cancel}
			a.timer = time.AfterFunc(time.Hour, a.giveUp)
			defer a.timer.Stop()
			trace := a.trace()
			for _, event := range test.events {
				switch event {
				case 'c':
					trace.GetConn("")
				case 'g':
					trace.GotConn(httptrace.GotConnInfo{})
				case 'w':
					trace.WroteHeaderField("", nil)
				case 'x':
					a.giveUp()
				case 'm':
					time.Sleep(minConnect)
					synctest.Wait()
				}
			}
			if got := context.Cause(ctx); got != test.want || a.written.Load() != test.sent {
				t.Errorf("%s: cancelled for %v, written %t", name, got, a.written.Load())
			}
		})
	}
}

// It was refused before.
func TestWhichAnswersShowThatALeaderAcceptsThisReplica(t *testing.T) {
	marked := http.Header{notLeadingHeader: {"true"}}
	for _, test := range []struct {
		answer    *answer
		err, want error
	}{
		{&answer{code: 201}, nil, nil},
		{&answer{code: 404}, nil, nil},
		{&answer{code: 503, header: marked}, nil, nil},
		{&answer{code: 401}, nil, errNotKnown},
		{&answer{code: 429}, nil, errNotKnown},
		{&answer{code: 500}, nil, errNotKnown},
		{&answer{code: 503}, nil, errNotKnown},
		{nil, errNotConnected, errNotKnown},
		{nil, election.ErrCertificate, election.ErrCertificate},
	} {
		h := &health{refused: errNotKnown}
		h.update(test.answer, test.err)
		if err := h.check(time.Now(), time.Hour); err != test.want || h.accepted != (err == nil) {
			t.Errorf("after %+v, %v: accepted %t, %v", test.answer, test.err, h.accepted, err)
		}
	}
}
