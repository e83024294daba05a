package sink

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A namespace in which every request hangs, because a webhook does not answer,
// delays no other.
func TestNamespaceThatHangsDelaysNoOther(t *testing.T) {
	const series = 500
	var recovered atomic.Bool
	f := &fake{answer: in("stuck", func(ctx context.Context, c *call) error {
		if recovered.Load() {
			return nil
		}
		return hang(ctx, c)
	})}
	bubble(t, f, func(o *Options) { o.Concurrency = 20 }, func(t *testing.T, b *bench) {
		b.recordEach(series, inNamespace("stuck"))
		synctest.Wait()
		for round := range 10 {
			began := time.Now()
			for i := range series {
				b.record(series*round + i)
			}
			synctest.Wait()
			if p := b.Pending(); p.Series != series || time.Since(began) != 0 {
				t.Errorf("round %d: %d series are pending", round, p.Series)
			}
			pass(10 * time.Second)
			if n := f.load("stuck").inFlight; round == 3 && n != 1 {
				t.Errorf("%d requests hang after 4 timeouts", n)
			}
		}
		recovered.Store(true)
		began := time.Now()
		b.flush()
		if took := time.Since(began); took > b.options.RequestTimeout+b.options.RetryMaxDelay+time.Second {
			t.Errorf("it took %v after the namespace had recovered", took)
		}
		if most := f.load("stuck").most; most > 15 {
			t.Errorf("%d of 20 slots were in one namespace", most)
		}
	})
}

// Series whose requests hang do not delay the others of their namespace, but for
// their first timeout if there are as many as it may have slots.
func TestSeriesThatHangDelayNoOtherOfTheirNamespace(t *testing.T) {
	for _, hanging := range []int{1, 14, 20} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			f := &fake{answer: func(ctx context.Context, c *call) error {
				var i int
				if _, err := fmt.Sscanf(c.object, "pod-%d", &i); err == nil && i < hanging {
					return hang(ctx, c)
				}
				return nil
			}}
			bubble(t, f, func(o *Options) { o.Concurrency = 20 }, func(t *testing.T, b *bench) {
				b.recordEach(hanging)
				synctest.Wait()
				for round := range 40 {
					var limit time.Duration
					if round == 0 && hanging > 15 {
						limit = b.options.RequestTimeout
					}
					for i := range 100 {
						b.record(1000 + 100*round + i)
					}
					synctest.Wait()
					b.wantWrittenWithin(limit, int64(100*(round+1)))
					pass(3 * time.Second)
				}
			})
		})
	}
}

// One webhook that does not answer may be called for a good many namespaces, in
// which things begin to happen one after the other.
func TestManyNamespacesThatHangDelayNoOther(t *testing.T) {
	bubble(t, &fake{answer: in("stuck-", hang)}, nil, func(t *testing.T, b *bench) {
		for n := range 40 {
			b.recordEach(100, inNamespace(fmt.Sprint("stuck-", n)))
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Minute)
		for i := range int64(20) {
			b.record(int(i))
			b.wantWrittenWithin(time.Second, 1+i)
			time.Sleep(time.Second)
		}
	})
}

// The admission plugin EventRateLimit answers 429 for one namespace, which says
// nothing about the others.
func TestNamespaceWithARateLimitSlowsNoOther(t *testing.T) {
	took := map[int]time.Duration{}
	for _, limited := range []int{0, 500} {
		limit := func(_ context.Context, c *call) error {
			if c.namespace == "limited" {
				return errTooMany
			}
			time.Sleep(100 * time.Millisecond)
			return nil
		}
		bubble(t, &fake{answer: limit}, nil, func(t *testing.T, b *bench) {
			b.recordEach(limited, inNamespace("limited"))
			time.Sleep(10 * time.Second)
			began := time.Now()
			b.recordEach(5000)
			b.wantWrittenWithin(time.Minute, 5000)
			took[limited] = time.Since(began)
		})
	}
	if took[500] > 2*took[0] {
		t.Errorf("it took %v, and %v beside a namespace with a rate limit", took[0], took[500])
	}
}

// A missing answer counts against its namespace, however short the timeout of requests is.
func TestTimeoutsCountAgainstTheirNamespace(t *testing.T) {
	f := &fake{answer: hang}
	short := func(o *Options) {
		o.Concurrency, o.RequestTimeout = 20, o.SlowAnswer-100*time.Millisecond
	}
	bubble(t, f, short, func(t *testing.T, b *bench) {
		b.recordEach(500)
		pass(20 * time.Second)
		// Nobody else has work, so the apiserver may be what is slow.
		if n, want := f.load("").inFlight, b.options.MinConcurrency/2; n != want {
			t.Errorf("%d requests hang after 20 timeouts, want %d", n, want)
		}
	})
}
