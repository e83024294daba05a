package sink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"
)

// capacity is an apiserver that executes so many requests at once, each for a while on
// average. It refuses those above that, in a hundredth of that while.
type capacity struct {
	slots int
	each  time.Duration

	mu                      sync.Mutex
	inFlight, sent, refused int
}

func (c *capacity) answer(context.Context, *call) error {
	number, ok := c.enter()
	if !ok {
		time.Sleep(c.each / 100)
		return errTooMany
	}
	// From a half to one and a half, so that they do not all end at once.
	time.Sleep(c.each/2 + c.each/100*time.Duration(number*61%101))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.inFlight--
	return nil
}

func (c *capacity) enter() (number int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.sent++
	if c.inFlight >= c.slots {
		c.refused++
		return 0, false
	}
	c.inFlight++
	return c.sent, true
}

func (c *capacity) halve() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.slots /= 2
	c.sent, c.refused = 0, 0
}

// recordAcross records one occurrence of each series, in several namespaces.
func (b *bench) recordAcross(namespaces, series int) {
	for i := range series {
		b.record(i, inNamespace(fmt.Sprint("ns-", i%namespaces)))
	}
}

// An apiserver that executes only a few requests at once gets no more than those, and
// everything is written.
func TestConcurrencyFollowsWhatTheApiserverTakes(t *testing.T) {
	const slots, series = 16, 10_000
	c := &capacity{slots: slots, each: 20 * time.Millisecond}
	bubble(t, &fake{answer: c.answer}, nil, func(t *testing.T, b *bench) {
		began := time.Now()
		b.recordAcross(4, series)
		b.flush()
		b.wantEnds(ends{written: series})
		// Those refused last wait for a while.
		ideal := series/slots*c.each + b.options.RetryBaseDelay
		if took := time.Since(began); took > ideal*11/10 {
			t.Errorf("it took %v, at least %v are needed", took, ideal)
		}
		if c.refused > c.sent/20 {
			t.Errorf("%d of %d requests were refused", c.refused, c.sent)
		}
	})
}

// Five seconds after the capacity is halved, nearly all of it is used, and hardly any
// request is refused.
func TestConcurrencySettlesWhenTheCapacityIsHalved(t *testing.T) {
	for _, slots := range []int{16, 32, 64, 128} {
		t.Run(fmt.Sprint(slots), func(t *testing.T) {
			c := &capacity{slots: slots, each: 100 * time.Millisecond}
			bubble(t, &fake{answer: c.answer}, func(o *Options) { o.Concurrency = 128 }, func(t *testing.T, b *bench) {
				b.recordAcross(4, 100*slots)
				time.Sleep(3 * time.Second)
				c.halve()
				time.Sleep(5 * time.Second)
				before := b.ledger.Totals().Written()
				time.Sleep(5 * time.Second)
				n := b.ledger.Totals().Written() - before
				// The limit is right but for a slot: where uneven shares of the
				// namespaces once had one too many, that many are not tried again for
				// a while. A slot is 6 % of 16.
				if least := 50 * (c.slots - 1); n < int64(least)*97/100 {
					t.Errorf("%d were written, the best limit but one writes %d", n, least)
				}
				c.mu.Lock()
				defer c.mu.Unlock()
				if c.refused*100 > c.sent {
					t.Errorf("%d of %d requests were refused since", c.refused, c.sent)
				}
			})
		})
	}
}

// An apiserver that becomes slow with load gets as much as it answers in good
// time, however many namespaces there are.
func TestConcurrencyFollowsTheLatencyInManyNamespaces(t *testing.T) {
	const namespaces, each = 300, 60 * time.Millisecond // 16 at once take nearly a second
	f := &fake{}
	f.answer = func(context.Context, *call) error {
		time.Sleep(time.Duration(f.load("").inFlight) * each)
		return nil
	}
	bubble(t, f, nil, func(t *testing.T, b *bench) {
		b.recordAcross(namespaces, 30_000)
		pass(4 * time.Minute)
		sum := 0
		for range 60 {
			pass(time.Second)
			sum += f.load("").inFlight
		}
		if average := sum / 60; average > 20 {
			t.Errorf("%d requests in flight on average, where 16 make answers slow", average)
		}
	})
}
