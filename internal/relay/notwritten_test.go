package relay

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"
)

// A lost session may have carried a request, or not. Only in the latter case is it sent again.
func TestRequestOfALostSessionIsSentAgainIfItWasNotWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		out := received(ctx)
		own, other := net.Pipe()
		s := newForwardSession(leaderServer{}, own)
		go s.run()
		var errs [2]chan error
		for i := range errs {
			errs[i] = make(chan error, 1)
			go func() {
				_, err := s.roundTrip(ctx, out)
				errs[i] <- err
			}()
			synctest.Wait() // the first is being written, and the other one waits for that
		}
		_ = other.Close()
		if err := <-errs[0]; !errors.Is(err, errLost) || repeatable(err) {
			t.Errorf("the one that was being written: %v", err)
		}
		if err := <-errs[1]; !errors.Is(err, errNotConnected) || !repeatable(err) {
			t.Errorf("the one that was not: %v", err)
		}
		if _, err := s.roundTrip(ctx, out); !errors.Is(err, errNoSession) {
			t.Errorf("a later one: %v", err)
		}
	})
}

// It gets its answers, and others go to the next session.
func TestRetiredSessionAcceptsNoRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out := received(ctx)
		own, other := net.Pipe()
		s := newForwardSession(leaderServer{}, own)
		go s.run()
		waiting := make(chan error, 1)
		go func() {
			_, err := s.roundTrip(ctx, out)
			waiting <- err
		}()
		synctest.Wait()
		s.retire()
		if _, err := s.roundTrip(ctx, out); !errors.Is(err, errNoSession) {
			t.Error(err)
		}
		_ = other.Close()
		if err := <-waiting; !errors.Is(err, errLost) {
			t.Error(err)
		}
		cancel()
	})
}

func TestEndOfASessionDropsNoOther(t *testing.T) {
	next := &forwardSession{}
	r := &Relay{session: next}
	r.dropSession(&forwardSession{})
	if r.session != next {
		t.Error("the next session is dropped")
	}
}
