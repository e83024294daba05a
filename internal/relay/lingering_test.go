package relay

import (
	"context"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/internal/relay/frame"
)

// A write wakes the leader: requests of a moment share it. A client that sends one after the other waits for
// nothing, also while the request of another one hangs.
func TestRequestsOfAMomentAreForwardedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		own, leader := net.Pipe()
		s := newForwardSession(leaderServer{}, own)
		ended, arrived := make(chan struct{}), make(chan uint64, 10)
		go func() {
			s.run()
			close(ended)
		}()
		go func() {
			frames := frame.NewReader(leader)
			for {
				kind, id, _, err := frames.Next()
				if err != nil {
					return
				}
				if kind == frame.Request {
					arrived <- id
				}
			}
		}()
		send := func() {
			go func() { _, _ = s.roundTrip(ctx, received(ctx)) }()
			synctest.Wait()
		}
		want := func(when string, requests int) {
			t.Helper()
			synctest.Wait()
			if got := len(arrived); got != requests {
				t.Errorf("%s: %d requests have arrived, want %d", when, got, requests)
			}
		}
		for i := range 3 {
			send()
			want("one after the other", i+1)
			s.answer(uint64(i+1), frame.AppendAnswerHead(nil, 201, nil), true)
		}
		send()
		want("none is pending", 4)
		send()
		send()
		want("one is", 4)
		time.Sleep(10 * time.Millisecond)
		want("after a while", 6)
		for i := range 3 {
			send()
			want("others hang", i+7)
			s.answer(uint64(i+7), frame.AppendAnswerHead(nil, 201, nil), true)
		}
		_ = leader.Close()
		<-ended
	})
}
