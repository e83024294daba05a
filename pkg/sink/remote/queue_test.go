package remote

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// A batch waits for more of its namespace since its first Event came, but not if it is full or something flushes.
func TestWhenABatchIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const delay = 100 * time.Millisecond
		began := time.Now()
		q := newQueue(target{}, 3)
		add := func() *item {
			i := &item{series: occurrence.Digest{byte(len(q.forming))}, bytes: 1}
			q.add(i)
			return i
		}
		due := func(what string, hurry bool, want time.Duration) {
			t.Helper()
			if got := q.due(delay, hurry).Sub(began); got != want {
				t.Errorf("%s: due after %v, want %v", what, got, want)
			}
		}
		add()
		time.Sleep(time.Millisecond)
		add()
		due("two Events", false, delay)
		due("two Events and a flush", true, 0)
		add()
		due("a full batch", false, 0)
		retrying := add()
		q.removeForming(3)
		q.removeForming(2)
		retrying.retryAt = began.Add(time.Hour)
		q.retrying = []*item{retrying, {retryAt: began.Add(time.Minute)}, {retryAt: began.Add(2 * time.Hour)}}
		due("with Events to send again later", false, delay)
		q.retrying[1].retryAt = began.Add(time.Millisecond)
		due("with one to send again sooner", false, time.Millisecond)
		q.notBefore = began.Add(time.Second)
		due("after a failure", false, time.Second)
		q.notBefore = time.Time{}
		q.removeForming(1)
		q.removeForming(0)
		q.retrying[1].retryAt = began.Add(time.Minute)
		due("with nothing else", false, time.Minute)
	})
}

// A batch has what is due again, and then what is new, up to its limits, but at least one Event.
func TestWhatABatchHas(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		bytes    []int64 // of two to send again, one to send again later, and four new ones
		maxBytes int64
		want     string
	}{
		"up to its number": {[]int64{1, 1, 1, 1, 1, 1, 1}, 100, "[0 1 3 4]"},
		"up to its bytes":  {[]int64{10, 10, 10, 10, 10, 10, 10}, 30, "[0 1 3]"},
		"at least one":     {[]int64{50, 10, 10, 10, 10, 10, 10}, 30, "[0]"},
		"what fits":        {[]int64{10, 50, 10, 10, 10, 10, 10}, 30, "[0 3 4]"},
	} {
		q := newQueue(target{}, 4)
		var all []*item
		for n, bytes := range test.bytes {
			i := &item{series: occurrence.Digest{byte(n)}, bytes: bytes}
			if all = append(all, i); n > 2 {
				q.add(i)
				continue
			}
			i.retryAt = now
			q.retrying = append(q.retrying, i)
		}
		all[2].retryAt = now.Add(1)
		var got []int
		for _, i := range q.batch(now, test.maxBytes) {
			got = append(got, int(i.series[0]))
			if q.waiting[i.series] != nil {
				t.Errorf("%s: what happens again would be merged into what is sent", name)
			}
		}
		if fmt.Sprint(got) != test.want {
			t.Errorf("%s: %v, want %s", name, got, test.want)
		}
		if left := len(q.forming) + len(q.retrying); left+len(got) != len(all) || len(q.waiting) != len(q.forming) {
			t.Errorf("%s: %d are left, %d wait for repeats", name, left, len(q.waiting))
		}
		if len(q.forming) > 0 && q.due(time.Hour, false).After(now) {
			t.Errorf("%s: what had no place waits for more", name)
		}
	}
}

// What happens again is merged into the newest Event of its series, and not into one that is sent or evicted.
func TestRepeatsAreMergedIntoTheNewestEvent(t *testing.T) {
	q := newQueue(target{}, 1)
	older, newer := &item{}, &item{}
	q.add(older)
	q.add(newer) // the older one can take no more
	if q.batch(time.Now(), 1); q.waiting[newer.series] != newer {
		t.Error("the newer one takes no repeats when the older one is sent")
	}
	q.forming = []*item{older, newer}
	if q.removeForming(0); q.waiting[newer.series] != newer {
		t.Error("the newer one takes no repeats when the older one is evicted")
	}
	if q.removeForming(0); len(q.waiting) != 0 {
		t.Error("an evicted one takes repeats")
	}
}

// A full batch is sent at once, and what does not fit into it in the next one.
func TestFullBatchesAreSentAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeEventd()
		f.before = func(context.Context, int, []corev1.Event) error {
			time.Sleep(time.Second) // so that all are recorded before the first batch is answered
			return nil
		}
		s := newSubject(t, f, func(o *Options) { o.Delay, o.MaxItems = time.Hour, 10 })
		for i := range 25 {
			s.record("ns", fmt.Sprint("web-", i))
		}
		time.Sleep(4 * time.Second)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 25})
		if sizes := []int{10, 10, 5}; !slices.Equal(f.sizes, sizes) {
			t.Errorf("batches of %v are sent, want %v", f.sizes, sizes)
		}
		s.record("ns", "late")
		time.Sleep(time.Hour - time.Nanosecond)
		if s.balanced(t); f.counted() != 25 {
			t.Errorf("%d are counted before the delay", f.counted())
		}
		time.Sleep(2 * time.Second)
		want(t, s.balanced(t), map[occurrence.Outcome]int64{occurrence.Acknowledged: 26})
		s.close(t, t.Context())
	})
}
