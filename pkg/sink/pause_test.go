package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// outage answers as an apiserver that is away or back.
type outage struct{ away atomic.Bool }

func (o *outage) answer(then func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		if o.away.Load() {
			return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
		}
		return then(ctx)
	}
}

func hangs(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func answers(context.Context) error { return nil }

// wantWrittenWithin waits until as many are written as there should be.
func (b *bench) wantWrittenWithin(limit time.Duration, want int64) {
	b.t.Helper()
	start := time.Now()
	for b.ledger.Totals().Written() < want {
		time.Sleep(10 * time.Millisecond)
		if time.Since(start) > 10*time.Minute {
			b.t.Fatalf("%d of %d are never written", b.ledger.Totals().Written(), want)
		}
	}
	if took := time.Since(start); took > limit {
		b.t.Errorf("it took %v until they were written, more than %v", took, limit)
	}
}

// What hangs since before the apiserver went away must not keep others from
// finding out that it is back.
func TestRequestThatHangsDoesNotHideThatTheApiserverIsBack(t *testing.T) {
	var o outage
	c := byNamespace{"stuck": hangs, "other": o.answer(answers)}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("stuck"))
		synctest.Wait()
		o.away.Store(true)
		b.record(0, inNamespace("other"))
		synctest.Wait()
		o.away.Store(false)
		b.wantWrittenWithin(2*maxPause, 1)
		closeSoon(t, b)
	})
}

// A request that got as far as the apiserver shows that it is there, also if the
// request then hangs.
func TestApiserverIsBackThoughTheRequestThatFindsOutHangs(t *testing.T) {
	var o outage
	o.away.Store(true)
	c := byNamespace{"other": o.answer(answers)}
	for i := range 5 {
		c[fmt.Sprint("stuck-", i)] = o.answer(hangs)
	}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		for i := range 5 {
			b.record(0, inNamespace(fmt.Sprint("stuck-", i)))
		}
		b.record(0, inNamespace("other"))
		time.Sleep(time.Minute)
		o.away.Store(false)
		b.wantWrittenWithin(DefaultOptions().RequestTimeout+2*maxPause, 1) // one may hang, not one after the other
		closeSoon(t, b)
	})
}

func closeSoon(t *testing.T, b *bench) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b.Close(ctx)
}
