package intake

import (
	"slices"
	"testing"
	"testing/synctest"
)

// test/hostile measures the delay that a flood causes, with separate processes. In this
// test no time passes.
func TestCallerThatComesLateIsSeatedBeforeAFloodThatWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const flood = 200
		s := testSeats(t, 1, flood+1)
		noisy, quiet := flow{Tenant: "noisy", Namespace: "ns"}, flow{Tenant: "quiet", Namespace: "ns"}
		leave, ok := s.acquire(t.Context(), noisy)
		if !ok {
			t.Fatal("no seat is free")
		}
		seated := make(chan flow)
		sit := func(f flow) {
			leave, ok := s.acquire(t.Context(), f)
			if !ok {
				t.Errorf("%v is refused", f)
			}
			seated <- f
			leave()
		}
		for range flood {
			go sit(noisy)
		}
		synctest.Wait()
		go sit(quiet)
		synctest.Wait()
		leave()
		var order []flow
		for range flood + 1 {
			order = append(order, <-seated)
		}
		// The flood waits in handSize queues, and each may have one request before.
		if at := slices.Index(order, quiet); at < 0 || at > handSize {
			t.Errorf("the caller that came late was seated after %d requests of the flood", at)
		}
	})
}
