package sink

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/test/sinktest"
)

// An apiserver that has been away and has just started answers 503, 429 or, until
// it has read its rules and namespaces, 403. Nothing is dropped for that, however long it
// was away.
func TestFirstAnswersOfAnApiserverThatIsBackCostNothing(t *testing.T) {
	const long = 11 * time.Minute
	for name, test := range map[string]struct {
		away  time.Duration
		first error
	}{
		"without its rules":      {time.Minute, errForbidden},
		"without its namespaces": {long, apierrors.NewForbidden(sinktest.EventsResource, "e", errors.New("not yet ready to handle request"))},
		"not ready":              {long, apierrors.NewServiceUnavailable("starting")},
		"overloaded":             {long, errTooMany},
		"without etcd":           {long, apierrors.NewInternalError(errors.New("etcdserver: no leader"))},
		"without tokens":         {long, apierrors.NewUnauthorized("later")},
	} {
		t.Run(name, func(t *testing.T) {
			away := func(ctx context.Context, c *call) error {
				if c.since < test.away {
					return errUnreachable
				}
				return failUntil(test.away+2*time.Second, test.first)(ctx, c)
			}
			bubble(t, &fake{answer: away}, nil, func(t *testing.T, b *bench) {
				b.record(0)
				b.flush()
				b.wantEnds(ends{written: 1})
			})
		})
	}
}

// outage is an apiserver that is away or back. In namespaces that begin with stuck,
// requests hang.
type outage struct{ away atomic.Bool }

func (o *outage) answer(ctx context.Context, c *call) error {
	switch {
	case o.away.Load():
		return errUnreachable
	case strings.HasPrefix(c.namespace, "stuck"):
		return hang(ctx, c)
	default:
		return nil
	}
}

// A request that was not sent gives no result about the apiserver.
func TestRequestThatWasNotSentSaysNothingOfTheApiserver(t *testing.T) {
	var o outage
	f := &fake{answer: func(ctx context.Context, c *call) error {
		if c.namespace == "a/b" {
			return &apiclient.UnsentError{Err: errLost, Class: apiclient.ClassRefused}
		}
		return o.answer(ctx, c)
	}}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("a/b"))
		b.record(0)
		synctest.Wait()
		b.wantEnds(ends{written: 1, occurrence.Invalid: 1})
		o.away.Store(true)
		b.record(1)
		synctest.Wait()
		before := f.load("ns").sent
		for range 600 {
			b.record(1, inNamespace("a/b"))
			time.Sleep(100 * time.Millisecond)
		}
		if n := f.load("ns").sent - before; n > 150 {
			t.Errorf("%d requests were sent in a minute to an unreachable apiserver", n)
		}
		o.away.Store(false)
		b.wantWrittenWithin(2*time.Second, 2)
	})
}

// wantWrittenWithin waits until as many are written as there should be.
func (b *bench) wantWrittenWithin(limit time.Duration, want int64) {
	b.t.Helper()
	began := time.Now()
	for b.ledger.Totals().Written() < want {
		if pass(10 * time.Millisecond); time.Since(began) > limit {
			b.t.Fatalf("%d of %d are written after %v", b.ledger.Totals().Written(), want, limit)
		}
	}
}

// A request that hangs since before the outage must not hide from others that the
// apiserver is back.
func TestRequestThatHangsDoesNotHideThatTheApiserverIsBack(t *testing.T) {
	var o outage
	bubble(t, &fake{answer: o.answer}, nil, func(t *testing.T, b *bench) {
		b.record(0, inNamespace("stuck"))
		synctest.Wait()
		o.away.Store(true)
		b.record(0)
		synctest.Wait()
		o.away.Store(false)
		b.wantWrittenWithin(2*time.Second, 1)
	})
}

// A request that reached the apiserver shows that it is back, also if the request then hangs.
func TestApiserverIsBackThoughTheProbeHangs(t *testing.T) {
	var o outage
	o.away.Store(true)
	bubble(t, &fake{answer: o.answer}, nil, func(t *testing.T, b *bench) {
		for i := range 5 {
			b.record(0, inNamespace(fmt.Sprint("stuck-", i)))
		}
		b.record(0)
		time.Sleep(time.Minute)
		o.away.Store(false)
		b.wantWrittenWithin(b.options.RequestTimeout+2*time.Second, 1) // one may hang, not one after the other
	})
}

// An apiserver that is away gets a request now and then, not one for each Event. What is
// pending is written as soon as it is back.
func TestApiserverThatCannotBeReachedIsTriedByOne(t *testing.T) {
	const series = 1000
	var o outage
	o.away.Store(true)
	f := &fake{answer: o.answer}
	bubble(t, f, func(o *Options) { o.RetryFor = 10 * time.Second }, func(t *testing.T, b *bench) {
		b.recordEach(series, inNamespace("a"))
		time.Sleep(time.Minute)
		if n := f.sent(); n > 150 {
			t.Errorf("%d requests in a minute", n)
		}
		b.recordEach(series, inNamespace("b"))
		o.away.Store(false)
		pass(time.Second)
		b.wantEnds(ends{written: 2 * series})
		if limit := b.concurrencyLimit(); limit < b.options.Concurrency/2 {
			t.Errorf("the concurrency limit is %d afterwards", limit)
		}
	})
}
