package sink

import (
	"context"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// These tests are about time, so the far end is in the process and the clock is
// a bubble's. What the apiserver answers is tested in apiserver_test.go.

func TestHangingRequestDelaysNoOtherSeries(t *testing.T) {
	var mu sync.Mutex
	hung := false
	c := scripted(func(ctx context.Context, v apiclient.Verb) (*corev1.Event, error) {
		mu.Lock()
		first := !hung
		hung = true
		mu.Unlock()
		if first {
			return hang(ctx, v)
		}
		return nil, nil
	})
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		b.record(0)
		synctest.Wait()
		start := time.Now()
		for i := range 100 {
			b.record(1 + i)
		}
		synctest.Wait()
		if p := b.Pending(); p.Series != 1 || time.Since(start) != 0 {
			t.Errorf("%d series pending after %v", p.Series, time.Since(start))
		}
		if left := b.Flush(t.Context()); left.Series != 0 {
			t.Errorf("left %+v", left)
		}
		if took := time.Since(start); took > DefaultOptions().RequestTimeout+time.Second {
			t.Errorf("the hanging series took %v", took)
		}
	})
}

func TestOneSeriesHasOneRequestInFlight(t *testing.T) {
	var mu sync.Mutex
	inFlight, most := 0, 0
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) {
		mu.Lock()
		inFlight++
		most = max(most, inFlight)
		mu.Unlock()
		time.Sleep(time.Second)
		mu.Lock()
		inFlight--
		mu.Unlock()
		return nil, apierrors.NewServiceUnavailable("")
	})
	bubble(t, c, func(o *Options) { o.RetryFor = time.Minute }, func(t *testing.T, b *bench) {
		for range 1000 {
			b.record(0)
			time.Sleep(10 * time.Millisecond)
		}
		b.Flush(t.Context())
		if most != 1 {
			t.Errorf("%d requests in flight at once", most)
		}
	})
}

func TestPendingSeriesAreCapped(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.MaxPendingSeries = 5 }, func(t *testing.T, b *bench) {
		for i := range 10 {
			b.record(i)
			b.record(i)
		}
		if got := b.ledger.Totals(); got.Dropped[occurrence.PendingFull] != 10 || b.Pending() != (Pending{Series: 5, Occurrences: 10}) {
			t.Errorf("settled as %v, pending %+v", got, b.Pending())
		}
		closeSoon(t, b)
	})
}

func TestPendingBytesAreCapped(t *testing.T) {
	bubble(t, scripted(hang), func(o *Options) { o.MaxPendingBytes = 1 << 20 }, func(t *testing.T, b *bench) {
		for range 10_000 { // of one series, and each is waited for
			b.record(0, func(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) {} })
		}
		got := b.Pending().Occurrences
		if got < 500 || got > 1024 || b.ledger.Totals().Dropped[occurrence.PendingFull] != 10_000-got {
			t.Errorf("%d pending, settled as %v", got, b.ledger.Totals())
		}
		closeSoon(t, b)
	})
}

func TestWriteRateIsBounded(t *testing.T) {
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) { return nil, nil })
	bubble(t, c, func(o *Options) { o.QPS, o.Burst = 100, 50 }, func(t *testing.T, b *bench) {
		start := time.Now()
		for i := range 1050 {
			b.record(i)
		}
		b.Flush(t.Context())
		if took := time.Since(start).Round(time.Second); took != 10*time.Second {
			t.Errorf("1,000 requests above the burst took %v", took)
		}
	})
}

// A client that ends its goroutine, as one that calls t.FailNow does, costs what
// it was asked for and not the process.
func TestClientThatEndsItsGoroutineDoesNotEndTheProcess(t *testing.T) {
	t.Parallel()
	const child = "EVENTD_TEST_GOEXIT"
	if os.Getenv(child) == "" {
		run := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^"+t.Name()+"$")
		run.Env = append(os.Environ(), child+"=1")
		if out, err := run.CombinedOutput(); err != nil {
			first, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
			t.Errorf("%v: %s", err, first)
		}
		return
	}
	c := scripted(func(context.Context, apiclient.Verb) (*corev1.Event, error) { runtime.Goexit(); return nil, nil })
	b := &bench{t: t, ledger: ledger.New(), namespace: "ns"}
	var err error
	if b.Sink, err = New(t.Context(), c, b.ledger, unlimited()); err != nil {
		t.Fatal(err)
	}
	b.record(0)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	b.Close(ctx)
}

func TestNamespaceMakesNoOthersSeriesForgotten(t *testing.T) {
	const size, own = 50, 20
	bubble(t, byNamespace{}, func(o *Options) { o.MaxIdleSeries = size }, func(t *testing.T, b *bench) {
		quiet := inNamespace("quiet")
		for i := range own {
			b.record(i, quiet)
		}
		synctest.Wait()
		for i := range 10 * size {
			b.record(i)
		}
		b.Flush(t.Context())
		b.mu.Lock()
		defer b.mu.Unlock()
		kept := 0
		for _, a := range b.idle.Values() {
			if a.Namespace == "quiet" {
				kept++
			}
		}
		if kept != own || b.idle.Len() != size {
			t.Errorf("%d of %d series of the quiet namespace are remembered, %d in all", kept, own, b.idle.Len())
		}
	})
}
