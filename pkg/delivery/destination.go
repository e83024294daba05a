package delivery

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/pkg/receiver"
)

// callGrace is the time between the timeout of a call and when it counts as hanging.
const callGrace = time.Second

// destination makes the calls to one receiver, one after the other, in a goroutine of its own,
// which a call that ignores its context keeps. Its worker makes the calls, one at a time, and then
// ends it.
type destination struct {
	calls    chan func()
	receiver receiver.Receiver // of the goroutine; nil before it is made
	ended    chan struct{}     // closed when the receiver is closed
}

func startDestination() *destination {
	d := &destination{calls: make(chan func()), ended: make(chan struct{})}
	go d.run()
	return d
}

func (d *destination) run() {
	defer close(d.ended)
	for call := range d.calls {
		call()
	}
	if d.receiver != nil {
		guard(func() answer { return answer{err: d.receiver.Close()} })
	}
}

// answer is what a call returns.
type answer struct {
	rejected int
	err      error
}

// guard makes an error of a panic: it would end the process, and then the next one.
func guard(call func() answer) (a answer) {
	defer func() {
		if p := recover(); p != nil {
			a = answer{err: fmt.Errorf("panic: %v", p)}
		}
	}()
	return call()
}

// call makes a call with a timeout, and waits until it returns. late is called if it has not
// returned callGrace after its timeout. ok is false if ctx has ended, and the call has not
// returned soon after.
func (d *destination) call(ctx context.Context, timeout time.Duration, do func(context.Context) answer, late func()) (_ answer, ok bool) {
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	answers := make(chan answer, 1)
	select {
	case d.calls <- func() { answers <- guard(func() answer { return do(limited) }) }: // it is idle
	case <-d.ended:
	}
	hanging := time.NewTimer(timeout + callGrace)
	defer hanging.Stop()
	for {
		select {
		case a := <-answers:
			return a, true
		case <-d.ended:
			return answer{err: errGoroutineEnded}, true
		case <-hanging.C:
			late()
		case <-ctx.Done():
			select {
			case a := <-answers:
				return a, true
			case <-time.After(grace.Period):
				return answer{}, false
			}
		}
	}
}

// errGoroutineEnded is the error of a receiver that calls runtime.Goexit. Another configuration
// starts it again.
var errGoroutineEnded = errors.New("a call has ended its goroutine")

// end closes the receiver, and waits for that for a short time.
func (d *destination) end() {
	close(d.calls)
	grace.Wait(d.ended)
}
