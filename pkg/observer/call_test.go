package observer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"
)

// Nobody would read a watch that opens after its time, nor end it.
func TestAWatchThatOpensTooLateIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release, w := make(chan struct{}), watch.NewFake()
		c := newClient(&oddWatches{newStore(), func() watch.Interface {
			<-release
			return w
		}})
		if _, err := c.watch(t.Context(), "1"); !errors.Is(err, errCallTimeout) {
			t.Errorf("the error is %v", err)
		}
		close(release)
		synctest.Wait()
		if !w.IsStopped() {
			t.Error("it is not stopped")
		}
	})
}

// A proxy may end each watch after one change.
func TestAWatchThatHasSentSomethingHasNotFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.breakAfter = func() int { return 1 }
		o, end := run(t, Options{Source: s})
		defer end()
		r := o.Reader(Start{})
		defer r.Close()
		synctest.Wait()
		next(t, r, 1)
		for i := range 20 {
			s.put(fmt.Sprint(i))
			synctest.Wait()
			next(t, r, 1)
		}
		if s := o.Status(); s.Err != nil {
			t.Errorf("%+v, want no error", s)
		}
	})
}

// Something that is no apiserver would else seem to be one whose etcd was restored.
func TestAnAnswerWithoutAVersionIsAFailure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		var broken atomic.Bool
		o, end := run(t, Options{Source: lister{s, func(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
			page, err := s.List(ctx, limit, token)
			if err == nil && broken.Load() {
				page.ResourceVersion = ""
			}
			return page, err
		}}})
		defer end()
		synctest.Wait()
		broken.Store(true)
		s.breakWatches()
		time.Sleep(time.Minute)
		if s := o.Status(); s.Err == nil || s.Connected || s.Position.Epoch != 0 {
			t.Errorf("%+v, want an error", s)
		}
	})
}

// failing returns a watch that sends a version, and then an error.
func failing(event *corev1.Event) watch.Interface {
	w := watch.NewFakeWithChanSize(2, false)
	w.Modify(event)
	w.Error(&apierrors.NewInternalError(errors.New("the connection broke")).ErrStatus)
	return w
}

func TestAWatchThatHasSentSomethingBeginsTheBackoffAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, n := newStore(), 0
		o, end := run(t, Options{Source: &oddWatches{s, func() watch.Interface {
			n++
			name := fmt.Sprint("event-", n)
			s.put(name)
			return failing(s.state()[name].DeepCopy())
		}}})
		defer end()
		time.Sleep(time.Minute)
		if restarts := testutil.ToFloat64(o.metrics.restarts.WithLabelValues(reasonFailed)); restarts < 100 {
			t.Errorf("%v restarts in a minute", restarts)
		}
	})
}

// What a reader's own watch has sent before it fails is returned before the next attempt.
func TestWhatAReaderHasFetchedIsReturnedThoughItsWatchFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put("first")
		s.put("second")
		first := s.history[0].event
		o, end := run(t, Options{Source: ownWatch{s, failing(first.DeepCopy())}})
		defer end()
		synctest.Wait()
		r := o.Reader(Start{Cursor: Cursor{ResourceVersion: "1"}})
		defer r.Close()
		if b := next(t, r, 10); len(b.Entries) != 1 || b.Entries[0].Event.Name != "first" || b.Cursor.ResourceVersion != "2" {
			t.Errorf("%+v, want the first version", b)
		}
		time.Sleep(time.Second)
		if b := next(t, r, 10); len(b.Entries) != 1 || b.Entries[0].Event.Name != "second" {
			t.Errorf("%+v, want the second version", b)
		}
	})
}

// Smaller pages than needed are more requests.
func TestPagesGrowAgainAfterOneThatWasTooLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for i := range 200 {
			s.put(fmt.Sprintf("event-%03d", i))
		}
		var limits []int64
		o, end := runWith(t, Options{Source: lister{s, func(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
			if limit > 1 { // that of a reader
				limits = append(limits, limit)
			}
			if token == "" && limit > 10 {
				return nil, ErrPageTooLarge
			}
			return s.List(ctx, limit, token)
		}}, MaxBytes: MinMaxBytes}, sizes{blockVersions: 256, blockBytes: 1 << 20, fetchBytes: 16 << 20, page: 64})
		defer end()
		r := o.Reader(Start{Oldest: true})
		defer r.Close()
		synctest.Wait()
		for got := 0; got < 200; {
			got += len(next(t, r, 1000).Entries)
		}
		if want := []int64{64, 32, 16, 8, 16, 32, 64, 64, 64}; !slices.Equal(limits, want) {
			t.Errorf("pages of %v Events, want %v", limits, want)
		}
	})
}

// A slow receiver finds each token expired. That is no failure.
func TestAListWhoseTokensExpireOneByOneGoesOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		for i := range 30 {
			s.put(fmt.Sprintf("event-%02d", i))
		}
		o, end := runWith(t, Options{Source: s, MaxBytes: MinMaxBytes}, smallSizes)
		defer end()
		r := o.Reader(Start{Oldest: true})
		defer r.Close()
		synctest.Wait()
		for got := 0; got < 30; {
			got += len(next(t, r, 1000).Entries)
			s.other(1)
			s.compact()
		}
		if st := o.Status(); st.Err != nil || s.expired < 3 {
			t.Errorf("%d tokens have expired, %+v", s.expired, st)
		}
	})
}
