package delivery

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

// An Event after a pause is sent at once, and those that follow it soon are sent together.
func TestASteadyStreamIsSentInFewRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		var requests int
		var sent time.Time
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			requests, sent = requests+1, time.Now()
			return 0, nil
		}
		b.apply(named("a"))
		b.begin()
		time.Sleep(time.Minute)
		for range 2 {
			wrote := time.Now()
			b.write("e", 1)
			if !sent.Equal(wrote) {
				t.Errorf("an Event after a pause was sent after %s", sent.Sub(wrote))
			}
		}
		requests = 0
		const length = 50 * sendInterval
		for began := time.Now(); time.Since(began) < length; time.Sleep(time.Millisecond) {
			b.history.write("e")
		}
		time.Sleep(sendInterval)
		if s := b.status("a"); requests > 52 || requests < 50 || s.Pending != 0 {
			t.Errorf("%d requests in %s: %+v", requests, length, s)
		}
		b.end(nil)
	})
}

// A receiver that is behind has no pause between its batches, nor at the end of a term.
func TestAFullBatchIsFollowedAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		gate := make(chan struct{})
		b.sends["a"] = func(context.Context, []receiver.Record) (int, error) {
			<-gate
			return 0, nil
		}
		b.apply(v1alpha1.Receiver{Name: "a", BatchSize: new(int32(5))})
		b.begin()
		b.write("first", 1)
		for i := range 1001 {
			b.history.write(fmt.Sprint(i))
		}
		began := time.Now()
		close(gate)
		synctest.Wait()
		if s := b.status("a"); s.Pending > 0 {
			t.Errorf("%+v", s)
		}
		if took := b.end(nil); took > 0 || time.Since(began) > 0 {
			t.Errorf("all took %s, the end of the term %s", time.Since(began), took)
		}
	})
}
