package intake

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
)

// connected returns a connection of HTTP/2 to somebody who says nothing.
func connected(t *testing.T, transport *http2.Transport, takes bool) *http2.ClientConn {
	t.Helper()
	here, there := net.Pipe()
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(io.Discard, there) })
	conn, err := transport.NewClientConn(here)
	if err != nil {
		t.Fatal(err)
	}
	if !takes {
		conn.SetDoNotReuse()
	}
	t.Cleanup(func() {
		_ = conn.Close()
		_ = here.Close()
		reading.Wait()
	})
	return conn
}

// A connection that takes no request now may do so soon, unless it has taken all that
// it may, or has had no request in flight for a while. Then another one is made, if
// there may be more, and it is closed with the last answer on it.
func TestWhichConnectionsTakeARequest(t *testing.T) {
	for name, test := range map[string]struct {
		takes          bool
		left, inFlight int
		idle           time.Duration
		more           bool // connections there may be

		used, kept, closed, dials bool
	}{
		"takes it":                            {takes: true, left: 2, used: true, kept: true},
		"takes its last":                      {takes: true, left: 1, used: true, kept: true},
		"has taken all, which are answered":   {takes: true, closed: true, dials: true},
		"has taken all, and answers the last": {takes: true, inFlight: 1, dials: true},
		"is full":                             {left: 2, inFlight: 1, idle: uselessAfter, kept: true},
		"is full, and there may be more":      {left: 2, inFlight: 1, idle: uselessAfter, more: true, kept: true, dials: true},
		"was full a moment ago":               {left: 2, idle: uselessAfter - 1, kept: true},
		"is useless":                          {left: 2, idle: uselessAfter, closed: true, dials: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var work sync.WaitGroup
				limit := 1
				if test.more {
					limit = 2
				}
				c := connectionsTo(leaderAddress{"127.0.0.1:1", "none"}, &work, limit)
				made := &dial{done: make(chan struct{})} // is being made, if one is asked for
				c.dial = made
				conn := &connection{ClientConn: connected(t, c.transport, test.takes), left: test.left, inFlight: test.inFlight, idle: time.Now().Add(-test.idle)}
				c.conns = []*connection{conn}
				a := &sending{}
				d, closed, err := c.place(a)
				if err != nil {
					t.Fatal(err)
				}
				if (a.conn == conn) != test.used || (d == made) != test.dials {
					t.Errorf("used %t, dials %t", a.conn == conn, d == made)
				}
				if slices.Contains(c.conns, conn) != test.kept || conn.dropped == test.kept || slices.Contains(closed, conn) != test.closed {
					t.Errorf("kept %t, dropped %t, closed %t", slices.Contains(c.conns, conn), conn.dropped, slices.Contains(closed, conn))
				}
				if test.used && (conn.left != test.left-1 || conn.inFlight != test.inFlight+1) {
					t.Errorf("%d are left, %d in flight", conn.left, conn.inFlight)
				}
				c.retire()
				work.Wait()
			})
		})
	}
}

// One that never took a request is a leader that cannot be reached: the next attempt
// is made after a pause.
func TestConnectionThatNeverTookARequestIsAFailedAttempt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var work sync.WaitGroup
		c := connectionsTo(leaderAddress{"127.0.0.1:1", "none"}, &work, 1)
		done := make(chan struct{})
		close(done)
		c.dial = &dial{done: done}
		c.conns = []*connection{{ClientConn: connected(t, c.transport, false), left: c.lifetime, idle: time.Now().Add(-uselessAfter)}}
		if _, closed, err := c.place(&sending{}); !errors.Is(err, errUseless) || len(closed) != 1 {
			t.Errorf("%d are closed: %v", len(closed), err)
		}
		c.retire()
		work.Wait()
	})
}

func TestWhyNoConnectionIsHad(t *testing.T) {
	gone := errors.New("gone")
	over, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	pending := &dial{done: make(chan struct{})}
	for name, test := range map[string]struct {
		ctx, patience context.Context
		dial          *dial
		want          error
	}{
		"the request is over":              {over, t.Context(), nil, gone},
		"nothing is made in time":          {t.Context(), over, pending, gone},
		"there is no room in time":         {t.Context(), over, nil, errFull},
		"there may be room after a moment": {t.Context(), t.Context(), nil, nil},
	} {
		c := &connections{retired: t.Context()}
		if err := c.await(test.ctx, test.patience, test.dial, make(chan struct{})); err != test.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}
