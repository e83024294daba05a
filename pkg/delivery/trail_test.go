package delivery

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/receiver"
)

// trailLines is a Trail that keeps a line for each call, by Event.
type trailLines struct {
	mu    sync.Mutex
	lines map[types.UID][]string
}

func (l *trailLines) add(e *corev1.Event, format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines[e.UID] = append(l.lines[e.UID], fmt.Sprintf(format, args...))
}

func (l *trailLines) Delivered(receiver string, e *corev1.Event, rejected int) {
	l.add(e, "%s delivered %d", receiver, rejected)
}

func (l *trailLines) NotDelivered(receiver string, e *corev1.Event, route string, why NotDelivered, err error) {
	l.add(e, "%s %s %s %v", receiver, why, route, err)
}

func (l *trailLines) want(t *testing.T, uid types.UID, want ...string) {
	t.Helper()
	synctest.Wait()
	l.mu.Lock()
	defer l.mu.Unlock()
	if got := l.lines[uid]; !slices.Equal(got, want) {
		t.Errorf("of %s: %q, want %q", uid, got, want)
	}
}

// The trail is told what the accounts count, and of Events as they are stored: the receiver gets them without
// what is redacted.
func TestATrailIsToldWhatBecomesOfEachVersion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &trailLines{lines: make(map[types.UID][]string)}
		b := newBench(t, func(o *Options) { o.Trail = l })
		b.filter = func(_ string, e *corev1.Event) bool { return e.UID == "filtered" }
		b.throttle = throttleBy{time.Hour, func(e *corev1.Event) string {
			return string(e.UID)
		}}
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			switch batch[0].Event.UID {
			case "refused":
				return 0, &receiver.Error{Err: errors.New("too large"), Permanent: true}
			case "rejected":
				return len(batch), nil
			default:
				return 0, nil
			}
		}
		b.apply(named("a"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		for _, uid := range []string{"well", "filtered", "refused", "rejected", "well"} {
			b.write(uid, 1)
		}
		l.want(t, "well", "a delivered 0", "a throttled all <nil>")
		l.want(t, "filtered", "a filtered filter <nil>")
		l.want(t, "refused", "a rejected  refused: too large")
		l.want(t, "rejected", "a rejected  <nil>")
		b.end(nil)
	})
}

// Of a request of which a part is rejected, it is not known which.
func TestATrailIsToldThatAPartIsRejected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &trailLines{lines: make(map[types.UID][]string)}
		b := newBench(t, func(o *Options) { o.Trail = l })
		b.sends["a"] = func(_ context.Context, batch []receiver.Record) (int, error) {
			time.Sleep(time.Second) // meanwhile, more is written
			return len(batch) / 2, nil
		}
		b.apply(named("a"))
		b.begin()
		time.Sleep(2 * cursorInterval)
		for _, uid := range []string{"first", "one", "other"} {
			b.write(uid, 1)
		}
		time.Sleep(time.Minute)
		l.want(t, "first", "a delivered 0")
		l.want(t, "one", "a delivered 1")
		l.want(t, "other", "a delivered 1")
		b.end(nil)
	})
}
