package sink

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/eventd/eventd/pkg/occurrence"
	testmetrics "github.com/eventd/eventd/test/metrics"
)

// hanging is a session of which some calls never return, and ignore that it is closed.
type hanging struct {
	io.ReadWriteCloser
	read, write, close bool
	released           chan struct{}
}

func (s *hanging) Read(p []byte) (int, error) {
	if s.read {
		<-s.released
	}
	return s.ReadWriteCloser.Read(p)
}

func (s *hanging) Write(p []byte) (int, error) {
	if s.write {
		<-s.released
	}
	return s.ReadWriteCloser.Write(p)
}

func (s *hanging) Close() error {
	if s.close {
		<-s.released
	}
	return s.ReadWriteCloser.Close()
}

func TestSessionEndsThoughItsCallsNeverReturn(t *testing.T) {
	for name, hangs := range map[string]hanging{
		"read": {read: true}, "write": {write: true}, "close": {close: true}, "all": {read: true, write: true, close: true},
	} {
		t.Run(name, func(t *testing.T) {
			replicas(t, 2, &fake{}, nil, func(t *testing.T, all []*replica) {
				released := make(chan struct{})
				defer close(released)
				here, there := net.Pipe()
				both := [2]hanging{hangs, hangs}
				both[0].ReadWriteCloser, both[1].ReadWriteCloser = here, there
				both[0].released, both[1].released = released, released
				s := all[1].followOver(all[0], &both[0], &both[1])
				all[0].recordEach(10)
				pass(time.Second)
				began := time.Now()
				if s.end(); time.Since(began) > time.Second {
					t.Errorf("both ends returned after %v", time.Since(began))
				}
				pass(time.Hour)
				all[0].wantEnds(ends{written: 10})
			})
		})
	}
}

// reader is an end of a session that is read for a while only.
type reader struct {
	net.Conn
	stopped atomic.Bool
	closed  chan struct{}
}

func (r *reader) Read(p []byte) (int, error) {
	if r.stopped.Load() {
		<-r.closed
	}
	return r.Conn.Read(p)
}

func (r *reader) Close() error {
	close(r.closed)
	return r.Conn.Close()
}

// The changes that it does not read are bounded, and other followers go on.
func TestFollowerThatStopsReadingEndsItsOwnStreamOnly(t *testing.T) {
	l := &logged{}
	replicas(t, 3, &fake{answer: hang, log: l.add}, nil, func(t *testing.T, all []*replica) {
		here, there := net.Pipe()
		end := &reader{Conn: here, closed: make(chan struct{})}
		s := all[1].followOver(all[0], end, there)
		defer all[2].follow(all[0]).end()
		all[0].record(0)
		pass(replicated)
		end.stopped.Store(true)
		long := func(o *occurrence.Occurrence) { o.Event.Message = strings.Repeat("x", 64<<10) }
		var got answers
		for range 600 {
			all[0].recordLater(1, time.Hour, got.wait, long)
			pass(time.Millisecond)
		}
		if got := got.calls(); got != (calls{accepted: 600}) {
			t.Errorf("%+v of 600", got)
		}
		s.end()
		if err := s.err[0]; err == nil || !strings.Contains(err.Error(), "too slow") {
			t.Errorf("the session has ended with %v", err)
		}
		l.wantLines(t, []string{"A follower holds nothing more", "too slow"})
		all[1].wantHeld(1)
		all[2].wantHeld(601)
	})
}

// A follower without memory confirms nothing more, and keeps what it holds.
func TestFollowerWithoutMemoryConfirmsNothing(t *testing.T) {
	replicas(t, 2, &fake{answer: hang}, nil, func(t *testing.T, all []*replica) {
		s := all[1].follow(all[0])
		var before, after answers
		all[0].recordEach(100, before.wait)
		pass(replicated)
		for i := range 1000 {
			all[0].record(1000+i, after.wait)
		}
		pass(replicated)
		if got := before.calls(); got.accepted != 100 {
			t.Errorf("%+v before", got)
		}
		got := after.calls()
		if got.accepted == 1000 || got.settled > 0 {
			t.Errorf("%+v of 1000 that are too many", got)
		}
		s.ended.Wait()
		all[1].follow(all[0]).ended.Wait() // nor does it drop that for a snapshot that is too large
		all[1].wantHeld(100 + int64(got.accepted))
		if _, bytes := all[1].held.held.Usage(); bytes > 1<<20 {
			t.Errorf("%d bytes are held", bytes)
		}
	})
}

func TestAwaitFollower(t *testing.T) {
	replicas(t, 2, &fake{answer: hang}, nil, func(t *testing.T, all []*replica) {
		if err := all[0].AwaitFollower(t.Context()); err != nil {
			t.Errorf("nothing is pending: %v", err)
		}
		all[0].recordEach(100)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := all[0].AwaitFollower(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("without a follower: %v", err)
		}
		var awaited sync.WaitGroup
		awaited.Go(func() {
			if err := all[0].AwaitFollower(t.Context()); err != nil {
				t.Error(err)
			}
		})
		pass(time.Second)
		here, there := net.Pipe()
		follower := &slow{Conn: here}
		all[1].followOver(all[0], follower, there)
		awaited.Wait()
		all[1].wantHeld(100)
		follower.takes.Store(int64(time.Second / 10))
		all[0].recordEach(100)
		if err := all[0].AwaitFollower(t.Context()); err != nil {
			t.Error(err)
		}
		all[1].wantHeld(200)
		all[0].crash()
	})
}

// A sink that does not replicate refuses sessions, and one that is closed ends them.
func TestSessionsNeedAnOpenSinkWithHoldings(t *testing.T) {
	bubble(t, &fake{}, nil, func(t *testing.T, b *bench) {
		here, there := net.Pipe()
		if err := b.Serve(t.Context(), here); !errors.Is(err, errNoHoldings) {
			t.Errorf("got %v", err)
		}
		if _, err := there.Read(make([]byte, 1)); err != io.EOF {
			t.Errorf("the session is not closed: %v", err)
		}
	})
	replicas(t, 2, &fake{}, nil, func(t *testing.T, all []*replica) {
		began := time.Now()
		if all[0].closeWithin(time.Second); time.Since(began) > 0 {
			t.Errorf("closed after %v", time.Since(began))
		}
		s := all[1].follow(all[0])
		s.wantError(t, errClosed)
	})
	if _, err := NewHoldings(HoldingsOptions{}); err == nil {
		t.Error("holdings without memory")
	}
}

func TestFollowersAndHoldingsAreMetrics(t *testing.T) {
	var registries []*prometheus.Registry
	register := func(o *Options) {
		r := prometheus.NewPedanticRegistry()
		var err error
		if o.Holdings, err = NewHoldings(HoldingsOptions{MaxBytes: 1 << 20, Registerer: r}); err != nil {
			t.Fatal(err)
		}
		o.Registerer = r
		registries = append(registries, r)
	}
	replicas(t, 2, &fake{answer: hang}, register, func(t *testing.T, all []*replica) {
		want := func(complete, unreplicated, held float64) {
			t.Helper()
			synctest.Wait()
			leader, follower := testmetrics.Gather(t, registries[0]), testmetrics.Gather(t, registries[1])
			got := [3]float64{leader.Sum("eventd_sink_followers", "state=complete"), leader.Sum("eventd_sink_unreplicated_occurrences"), follower.Sum("eventd_held_occurrences")}
			if got != [3]float64{complete, unreplicated, held} {
				t.Errorf("%v complete followers, unreplicated, held; want %v %v %v", got, complete, unreplicated, held)
			}
			if bytes := follower.Sum("eventd_held_bytes"); (bytes > 0) != (held > 0) {
				t.Errorf("%v bytes are held", bytes)
			}
		}
		all[0].recordEach(3)
		want(0, 3, 0)
		s := all[1].follow(all[0])
		want(1, 0, 3)
		all[0].recordEach(3)
		pass(replicated)
		want(1, 0, 6)
		s.end()
		want(0, 6, 6)
		all[0].crash()
		want(0, 0, 6)
	})
}

// What changes while a snapshot is sent is held as well: of series that were sent, of those that
// were not, of new ones, and of those that end and begin again.
func TestChangesDuringASnapshotAreHeld(t *testing.T) {
	const series = 120
	replicas(t, 2, &fake{}, nil, func(t *testing.T, all []*replica) {
		for i := range series {
			all[0].recordLater(i, time.Hour)
		}
		here, there := net.Pipe()
		follower := &slow{Conn: here}
		follower.takes.Store(int64(10 * time.Millisecond))
		s := all[1].followOver(all[0], follower, there)
		for i := range 3 * series {
			switch {
			case i%6 == 0:
				all[0].record(i / 3) // it is written
			case i%3 < 2:
				all[0].recordLater(i/3, time.Hour)
			default:
				all[0].recordLater(series+i, time.Hour)
				all[0].recordLater(series+i, time.Hour)
			}
			pass(time.Millisecond)
		}
		follower.takes.Store(0)
		pass(time.Minute)
		if state := all[0].followers(); state.Complete != 1 {
			t.Errorf("%+v", state)
		}
		all[1].wantHeld(all[0].Pending().Occurrences)
		s.end()
		pending := all[0].Pending()
		all[0].crash()
		all[1].leads()
		all[1].wantTotals(0, pending.Occurrences, ends{written: pending.Occurrences})
	})
}
