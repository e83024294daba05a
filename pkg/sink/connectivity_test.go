package sink

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/sinktest"
)

// An apiserver that has been away and has just started answers 503, 429 or, until
// it has read its rules and namespaces, 403. However long it was away, that is no
// reason to give anything up.
func TestFirstAnswersOfAnApiserverThatIsBackCostNothing(t *testing.T) {
	for name, test := range map[string]struct {
		away  time.Duration
		first error
	}{
		"it has not read its rules": {time.Minute, apierrors.NewForbidden(sinktest.EventsResource, "e",
			errors.New(`User "eventd" cannot create resource "events" in API group "" in the namespace "ns"`))},
		"it has not read its namespaces": {11 * time.Minute, apierrors.NewForbidden(sinktest.EventsResource, "e",
			errors.New("not yet ready to handle request"))},
		"it is not ready":        {11 * time.Minute, apierrors.NewServiceUnavailable("starting")},
		"it has too much to do":  {11 * time.Minute, apierrors.NewTooManyRequestsError("later")},
		"it cannot reach etcd":   {11 * time.Minute, apierrors.NewInternalError(errors.New("etcdserver: no leader"))},
		"it knows no tokens yet": {11 * time.Minute, apierrors.NewUnauthorized("later")},
	} {
		t.Run(name, func(t *testing.T) {
			var start time.Time
			c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
				switch since := time.Since(start); {
				case since < test.away:
					return nil, &net.OpError{Op: "dial", Err: errors.New("connection refused")}
				case since < test.away+2*time.Second:
					return nil, test.first
				default:
					return nil, nil
				}
			})
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				start = time.Now()
				b.record(0)
				b.Flush(t.Context())
				if got := b.ledger.Totals(); got.Written() != 1 {
					t.Errorf("settled as %v, dropped %v", got.Outcomes, got.Dropped)
				}
			})
		})
	}
}

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

// What was never sent says neither that the apiserver is away nor that it is there.
func TestRequestThatWasNotSentSaysNothingOfTheApiserver(t *testing.T) {
	o := &outage{}
	var asked atomic.Int64
	c := byNamespace{
		"a/b": func(context.Context) error {
			return &apiclient.UnsentError{Err: errLost, Class: apiclient.ClassRefused}
		},
		"ns": func(ctx context.Context) error {
			asked.Add(1)
			return o.answer(answers)(ctx)
		},
	}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("a/b"))
		b.record(0)
		synctest.Wait()
		if got := b.ledger.Totals(); got.Written() != 1 || got.Dropped[occurrence.Invalid] != 1 {
			t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
		}
		o.away.Store(true)
		b.record(1)
		synctest.Wait()
		before := asked.Load()
		for range 600 {
			b.record(1, inNamespace("a/b"))
			time.Sleep(100 * time.Millisecond)
		}
		if n := asked.Load() - before; n > 150 {
			t.Errorf("%d requests were sent in a minute to an apiserver that is unreachable", n)
		}
		o.away.Store(false)
		b.wantWrittenWithin(2*time.Second, 2)
	})
}

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
		b.wantWrittenWithin(2*time.Second, 1)
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
		b.wantWrittenWithin(DefaultOptions().RequestTimeout+2*time.Second, 1) // one may hang, not one after the other
		closeSoon(t, b)
	})
}

// An apiserver that is away is asked for now and then, not for each Event, and
// what it missed is written as soon as it is back.
func TestApiserverThatCannotBeReachedIsTriedByOne(t *testing.T) {
	var mu sync.Mutex
	away, asked := true, 0
	c := byNamespace{}
	for _, name := range []string{"a", "b"} {
		c[name] = func(context.Context) error {
			mu.Lock()
			defer mu.Unlock()
			if asked++; away {
				return &net.OpError{Op: "dial", Err: errors.New("connection refused")}
			}
			return nil
		}
	}
	bubble(t, c, func(o *Options) { o.RetryFor = 10 * time.Second }, func(t *testing.T, b *bench) {
		const series = 1000
		for i := range series {
			b.record(i, inNamespace("a"))
		}
		time.Sleep(time.Minute)
		mu.Lock()
		if asked > 150 {
			t.Errorf("it was asked for %d times in a minute", asked)
		}
		mu.Unlock()
		for i := range series {
			b.record(i, inNamespace("b"))
		}
		mu.Lock()
		away = false
		mu.Unlock()
		pass(time.Second)
		if got := b.ledger.Totals(); got.Written() != 2*series {
			t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
		}
		if limit := b.concurrencyLimit(); limit < DefaultOptions().Concurrency/2 {
			t.Errorf("%d places afterwards", limit)
		}
	})
}
