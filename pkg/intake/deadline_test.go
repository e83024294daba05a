package intake

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// newTestDeadline returns a deadline of a second that is over at the end of the test.
func newTestDeadline(t *testing.T, ends context.Context) *deadline {
	d := new(deadline)
	d.begin(context.WithValue(ends, valueKey{}, "of values"), ends, time.Now().Add(time.Second))
	t.Cleanup(d.end)
	return d
}

type valueKey struct{}

// Whether somebody waits for its end or not, and from when on, a deadline ends as one of context.WithDeadline.
func TestDeadlineEndsAsThatOfAContext(t *testing.T) {
	const over = time.Second + 1 // the timer of another goroutine has fired by then
	for name, test := range map[string]struct {
		end  func(d *deadline, leave context.CancelFunc)
		want error
	}{
		"not":                       {func(*deadline, context.CancelFunc) { time.Sleep(over - 2) }, nil},
		"by its time":               {func(*deadline, context.CancelFunc) { time.Sleep(over) }, context.DeadlineExceeded},
		"by its time, and then end": {func(d *deadline, _ context.CancelFunc) { time.Sleep(over); _ = d.Err(); d.end() }, context.DeadlineExceeded},
		"by its time, and then the client": {func(d *deadline, leave context.CancelFunc) {
			time.Sleep(over)
			_ = d.Err()
			leave()
		}, context.DeadlineExceeded},
		"by end":                           {func(d *deadline, _ context.CancelFunc) { d.end() }, context.Canceled},
		"by end, and then its time":        {func(d *deadline, _ context.CancelFunc) { d.end(); time.Sleep(time.Minute) }, context.Canceled},
		"by the client":                    {func(_ *deadline, leave context.CancelFunc) { leave() }, context.Canceled},
		"by the client, and then its time": {func(d *deadline, leave context.CancelFunc) { leave(); _ = d.Err(); time.Sleep(time.Minute) }, context.Canceled},
	} {
		for waits, wait := range map[string]func(*deadline){
			"nobody waits":      func(*deadline) {},
			"somebody waits":    func(d *deadline) { d.Done() },
			"another one waits": func(d *deadline) { context.AfterFunc(d, func() {}) },
		} {
			t.Run(name+", "+waits, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					client, leave := context.WithCancel(t.Context())
					defer leave()
					d := newTestDeadline(t, client)
					wait(d)
					test.end(d, leave)
					synctest.Wait()
					for range 2 {
						if got := d.Err(); got != test.want {
							t.Errorf("ended by %v, want %v", got, test.want)
						}
					}
					select {
					case <-d.Done():
						equal(t, "ended", true, test.want != nil)
					default:
						equal(t, "ended", false, test.want != nil)
					}
				})
			})
		}
	}
}

// Contexts that are derived from a deadline end with it, and take no goroutine for that.
func TestContextsOfADeadlineEndWithIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client, leave := context.WithCancel(t.Context())
		defer leave()
		before := runtime.NumGoroutine()
		first, second := newTestDeadline(t, client), new(deadline)
		second.begin(first, client, time.Now().Add(time.Second/2))
		var all [2]context.Context
		for i, of := range []*deadline{first, second} {
			inner, cancel := context.WithTimeout(of, time.Hour)
			defer cancel()
			all[i] = inner
			at, ok := inner.Deadline()
			equal(t, "has the deadline", ok && at.Equal(of.at), true)
			equal(t, "value", inner.Value(valueKey{}), any("of values"))
		}
		equal(t, "goroutines", runtime.NumGoroutine(), before)
		second.end()
		equal(t, "of the second", all[1].Err(), context.Canceled)
		equal(t, "of the first", all[0].Err(), nil)
		<-all[0].Done()
		equal(t, "of the first", all[0].Err(), context.DeadlineExceeded)
	})
}

func TestDeadlineHasTheCallOfItsRequest(t *testing.T) {
	d, of := newTestDeadline(t, t.Context()), new(call)
	other := new(call)
	d.values = withCall(d.values, other)
	equal(t, "call", callOf(d), other)
	d.call = of
	equal(t, "call", callOf(d), of)
	_ = d.Done()
	equal(t, "call when somebody waits", callOf(d), of)
	equal(t, "another value", d.Value(valueKey{}), any("of values"))
}
