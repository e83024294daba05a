package sink

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A namespace in which every request hangs, because a webhook does not answer,
// delays no other.
func TestNamespaceThatHangsDelaysNoOther(t *testing.T) {
	var mu sync.Mutex
	stuck, inFlight, most := true, 0, 0
	c := byNamespace{"stuck": func(ctx context.Context) error {
		mu.Lock()
		hangs := stuck
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		if hangs {
			<-ctx.Done()
		}
		mu.Lock()
		defer mu.Unlock()
		inFlight--
		return ctx.Err()
	}}
	bubble(t, c, func(o *Options) { o.Concurrency = 20 }, func(t *testing.T, b *bench) {
		const series = 500
		for i := range series {
			b.record(i, inNamespace("stuck"))
		}
		synctest.Wait()
		for round := range 10 {
			start := time.Now()
			for i := range series {
				b.record(series*round+i, inNamespace("other"))
			}
			synctest.Wait()
			if p := b.Pending(); p.Series != series || time.Since(start) != 0 {
				t.Errorf("round %d: %d series are pending", round, p.Series)
			}
			pass(10 * time.Second)
			if round == 3 {
				mu.Lock()
				if inFlight != 1 {
					t.Errorf("%d requests hang after 4 time-outs", inFlight)
				}
				mu.Unlock()
			}
		}
		mu.Lock()
		stuck = false
		mu.Unlock()
		start := time.Now()
		if left := b.Flush(t.Context()); left.Series != 0 {
			t.Errorf("left %+v", left)
		}
		if took := time.Since(start); took > DefaultOptions().RequestTimeout+DefaultOptions().RetryMaxDelay+time.Second {
			t.Errorf("it took %v when the namespace was well again", took)
		}
		if most > 15 {
			t.Errorf("%d of 20 places were in one namespace", most)
		}
	})
}

// byObject answers creates by the name of the object that the Event is about, and
// takes everything else.
type byObject map[string]func(ctx context.Context) error

func (c byObject) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	answers := byNamespace{event.Namespace: c[event.InvolvedObject.Name]}
	return answers.Create(ctx, occurrence.CoreV1, event)
}

func (c byObject) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return byNamespace{}.Patch(ctx, api, namespace, name, patch)
}

// Series whose requests hang do not delay the others of their namespace, but for
// their first time-out if there are as many as it may have places.
func TestSeriesThatHangDelayNoOtherOfTheirNamespace(t *testing.T) {
	for _, hanging := range []int{1, 14, 20} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			c := byObject{}
			for i := range hanging {
				c[fmt.Sprint("pod-", i)] = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			}
			bubble(t, c, func(o *Options) { o.Concurrency = 20 }, func(t *testing.T, b *bench) {
				for i := range hanging {
					b.record(i)
				}
				synctest.Wait()
				for round := range 40 {
					start := time.Now()
					for i := range 100 {
						b.record(1000 + 100*round + i)
					}
					synctest.Wait()
					for b.ledger.Totals().Written() < int64(100*(round+1)) {
						pass(100 * time.Millisecond)
					}
					var most time.Duration
					if round == 0 && hanging > 15 {
						most = DefaultOptions().RequestTimeout
					}
					if took := time.Since(start); took > most {
						t.Errorf("round %d took %v", round, took)
					}
					pass(3 * time.Second)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				b.Close(ctx)
			})
		})
	}
}

// One webhook that does not answer may be asked for a good many namespaces, in
// which things begin to happen one after the other.
func TestManyNamespacesThatHangDelayNoOther(t *testing.T) {
	const stuck = 40
	c := byNamespace{}
	for i := range stuck {
		c[fmt.Sprint("stuck-", i)] = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
	}
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		for n := range stuck {
			for i := range 100 {
				b.record(i, inNamespace(fmt.Sprint("stuck-", n)))
			}
			time.Sleep(3 * time.Second)
		}
		time.Sleep(time.Minute)
		var worst time.Duration
		for i := range 20 {
			start := time.Now()
			settled := make(chan struct{})
			b.record(i, inNamespace("other"), func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) { close(settled) } })
			<-settled
			worst = max(worst, time.Since(start))
			time.Sleep(time.Second)
		}
		if worst > time.Second {
			t.Errorf("another namespace waits for up to %v, with %d places in all", worst, b.concurrencyLimit())
		}
		closeSoon(t, b)
	})
}

// One webhook that does not answer may be asked for several namespaces.
func TestNamespacesThatHangLeaveRoomForOthers(t *testing.T) {
	for _, n := range []int{2, 3} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			c := byNamespace{}
			for i := range n {
				c[fmt.Sprint("stuck-", i)] = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			}
			bubble(t, c, nil, func(t *testing.T, b *bench) {
				for i := range 500 {
					for k := range n {
						b.record(i, inNamespace(fmt.Sprint("stuck-", k)))
					}
				}
				synctest.Wait()
				b.record(0, inNamespace("other"))
				time.Sleep(time.Second)
				if got := b.ledger.Totals().Written(); got != 1 {
					t.Error("another namespace waits for those that hang")
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				b.Close(ctx)
			})
		})
	}
}

// The admission plugin EventRateLimit answers 429 for one namespace, which says
// nothing of the others.
func TestNamespaceWithARateLimitSlowsNoOther(t *testing.T) {
	c := byNamespace{
		"limited": func(context.Context) error {
			return apierrors.NewTooManyRequestsError("limit reached on type Namespace")
		},
		"other": func(context.Context) error { time.Sleep(100 * time.Millisecond); return nil },
	}
	took := map[int]time.Duration{}
	for _, limited := range []int{0, 500} {
		bubble(t, c, nil, func(t *testing.T, b *bench) {
			for i := range limited {
				b.record(i, inNamespace("limited"))
			}
			time.Sleep(10 * time.Second)
			start := time.Now()
			for i := range 5000 {
				b.record(i, inNamespace("other"))
			}
			for b.ledger.Totals().Written() < 5000 {
				time.Sleep(100 * time.Millisecond)
			}
			took[limited] = time.Since(start)
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			b.Close(ctx)
		})
	}
	if took[500] > 2*took[0] {
		t.Errorf("it took %v, and %v beside a namespace with a rate limit", took[0], took[500])
	}
}

// No answer is held against a namespace, however soon it is no longer waited for.
func TestTimeOutsAreHeldAgainstTheirNamespace(t *testing.T) {
	var mu sync.Mutex
	inFlight := 0
	c := byNamespace{"stuck": func(ctx context.Context) error {
		mu.Lock()
		inFlight++
		mu.Unlock()
		<-ctx.Done()
		mu.Lock()
		inFlight--
		mu.Unlock()
		return ctx.Err()
	}}
	short := func(o *Options) {
		o.Concurrency, o.RequestTimeout = 20, DefaultOptions().SlowAnswer-100*time.Millisecond
	}
	bubble(t, c, short, func(t *testing.T, b *bench) {
		for i := range 500 {
			b.record(i, inNamespace("stuck"))
		}
		pass(20 * time.Second)
		mu.Lock()
		// Nobody else has work, so the apiserver may be what is slow.
		if want := DefaultOptions().MinConcurrency / 2; inFlight != want {
			t.Errorf("%d requests hang after 20 time-outs, want %d", inFlight, want)
		}
		mu.Unlock()
		closeSoon(t, b)
	})
}
