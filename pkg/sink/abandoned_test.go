package sink

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// A namespace has its part of the requests, also if they are abandoned one after the other. If
// as many are abandoned as may be, there is no further one in any namespace.
func TestPartOfANamespaceIncludesItsAbandonedRequests(t *testing.T) {
	r := newRequests(8)
	abandonAll := func(namespace string) (n int) {
		for {
			a := &counter.Counter{Namespace: namespace, Key: occurrence.Key{A: uint64(len(r.abandoned))}}
			if !r.allow(a) {
				return n
			}
			r.begin(a)
			r.abandon(a)
			n++
		}
	}
	for _, test := range []struct {
		namespace string
		want      int
	}{{"a", 6}, {"b", 1}, {"c", 1}, {"d", 0}} {
		if n := abandonAll(test.namespace); n != test.want {
			t.Errorf("%d of 8 are abandoned in %s, want %d", n, test.namespace, test.want)
		}
	}
}

// A request that is not sent, since too many are abandoned, counts neither as one nor against its
// namespace.
func TestRequestThatIsNotSentCountsForNothing(t *testing.T) {
	f := &fake{takes: time.Second}
	bubble(t, f, func(o *Options) { o.Concurrency = 4 }, func(t *testing.T, b *bench) {
		limit := func(n int) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.requests.limit = n
		}
		limit(0)
		b.record(0)
		synctest.Wait()
		limit(4)
		for _, class := range []apiclient.Class{apiclient.ClassRetry, apiclient.ClassLost} {
			if n := testutil.ToFloat64(b.metrics.failed.WithLabelValues(string(class))); n != 0 {
				t.Errorf("%v requests have failed: %s", n, class)
			}
		}
		for i := range 20 {
			b.record(1 + i)
		}
		synctest.Wait()
		if n := f.load("ns").inFlight; n != 3 {
			t.Errorf("%d of 4 requests are in flight in the namespace, want 3", n)
		}
	})
}

// A request has a second after its timeout to return, and is abandoned then.
func TestRequestIsAbandonedASecondAfterItsTimeout(t *testing.T) {
	// The last interval of onLate is shorter than the others.
	slow := func(o *Options) { o.SlowAnswer = 1300 * time.Millisecond }
	bubble(t, stuck(everything), slow, func(t *testing.T, b *bench) {
		b.record(0)
		pass(b.options.RequestTimeout + requestGrace - time.Millisecond)
		if b.abandonedCount() != 0 {
			t.Error("it is abandoned before")
		}
		pass(time.Millisecond)
		if b.abandonedCount() != 1 {
			t.Error("it is not abandoned")
		}
	})
}

// A request that is abandoned while no namespace is answered counts against the apiserver.
func TestAbandonedRequestsDecreaseTheLimit(t *testing.T) {
	few := func(o *Options) { o.Concurrency, o.MinConcurrency = 10, 1 }
	bubble(t, stuck(everything), few, func(t *testing.T, b *bench) {
		b.record(0)
		pass(b.options.RequestTimeout + requestGrace)
		if n := b.concurrencyLimit(); n != 8 {
			t.Errorf("the limit is %d, want four fifths of 10", n)
		}
	})
}

// When an abandoned request returns, its Event is written at once.
func TestEventWhoseAbandonedRequestReturnsIsWrittenAtOnce(t *testing.T) {
	f := stuck(everything)
	patient := func(o *Options) { o.RetryFor, o.RetryBaseDelay, o.RetryMaxDelay = 24*time.Hour, time.Hour, time.Hour }
	bubble(t, f, patient, func(t *testing.T, b *bench) {
		b.record(0)
		pass(time.Minute)
		b.wantEnds(ends{})
		f.release()
		synctest.Wait()
		b.wantEnds(ends{written: 1})
	})
}
