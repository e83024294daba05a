package observer

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// lister is a store whose lists are replaced.
type lister struct {
	*store
	list func(ctx context.Context, limit int64, token string) (*corev1.EventList, error)
}

func (l lister) List(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
	return l.list(ctx, limit, token)
}

// Whoever may create Events could else have each reader hold a page of any size.
func TestAPageThatTakesTooMuchMemoryIsReadInParts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		const events, limit = 200, 100_000
		for i := range events {
			s.put(fmt.Sprint("event-", i))
		}
		s.put("event-0") // with more than the limit
		s.current["event-0"].Message = strings.Repeat("m", 2*limit)
		o, end := runWith(t, Options{Source: s, MaxBytes: MinMaxBytes}, sizes{blockVersions: 32, blockBytes: 1 << 20, fetchBytes: limit, page: 500})
		defer end()
		r := o.Reader(Start{Oldest: true})
		defer r.Close()
		synctest.Wait()
		for got := 0; got < events; {
			got += len(next(t, r, 1).Entries)
			held := int64(0)
			for _, v := range r.fetched {
				held += sizeOf(v)
			}
			if held > limit && len(r.fetched) > 1 {
				t.Fatalf("after %d of %d versions, %d bytes are held", got, events, held)
			}
		}
	})
}

func TestAVersionDoesNotKeepItsPage(t *testing.T) {
	page := &corev1.EventList{Items: make([]corev1.Event, 2)}
	page.ResourceVersion, page.Items[0].ResourceVersion, page.Items[1].ResourceVersion = "3", "1", "2"
	page.Items[1].Finalizers = make([]string, maxItems+1)
	r := &Reader{o: &Observer{sizes: defaultSizes}, progress: progress{list: &listing{floor: "1"}}}
	versions, err := r.pageOf(page)
	if err != nil || len(versions) != 1 || len(versions[0].Event.Finalizers) != maxItems || versions[0].Event == &page.Items[1] || versions[0].Event.ResourceVersion != "2" {
		t.Errorf("%v, %v", versions, err)
	}
}

// After a compaction all readers list at once.
func TestOnePageIsReadAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStore()
		s.put("event")
		release := make(chan struct{})
		var reading atomic.Int64
		o, end := run(t, Options{Source: lister{s, func(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
			if limit > 1 { // that of a reader
				reading.Add(1)
				defer reading.Add(-1)
				select {
				case <-release:
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			}
			return s.List(ctx, limit, token)
		}}})
		defer end()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var delivered atomic.Int64
		var readers []*Reader
		for range 8 {
			r := o.Reader(Start{Oldest: true})
			readers = append(readers, r)
			go func() {
				if b, err := r.Next(ctx, 1); err == nil && len(b.Entries) == 1 {
					delivered.Add(1)
				}
			}()
		}
		synctest.Wait()
		if reading.Load() != 1 {
			t.Errorf("%d pages are read at once, want 1", reading.Load())
		}
		readers[0].Close() // whether it waits or not
		synctest.Wait()
		close(release)
		synctest.Wait()
		if delivered.Load() != 7 {
			t.Errorf("%d of 7 readers have the Event", delivered.Load())
		}
		for _, r := range readers {
			r.Close()
		}
	})
}

// Neither what expires again and again, nor an Event that is too large for a page, is requested again
// at once.
func TestAListThatCannotGoOnIsNotRepeatedAtOnce(t *testing.T) {
	expired := apierrors.NewResourceExpired("the continue token has expired")
	expired.ErrStatus.ListMeta.Continue = "now"
	for name, failure := range map[string]error{"expired": expired, "too large": ErrPageTooLarge} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStore()
				const many = 1000
				var requests atomic.Int64
				o, end := run(t, Options{Source: lister{s, func(ctx context.Context, limit int64, token string) (*corev1.EventList, error) {
					if token == "" {
						return &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "1", Continue: "next"}}, nil
					}
					if requests.Add(1) > many {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return nil, failure
				}}})
				defer end()
				r := o.Reader(Start{Oldest: true})
				defer r.Close()
				wantNothing(t, r, time.Hour)
				if n := requests.Load(); n < 3 || n > 300 {
					t.Errorf("%d requests in an hour", n)
				}
			})
		})
	}
}
