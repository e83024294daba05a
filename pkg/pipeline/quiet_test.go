package pipeline

import (
	"context"
	"fmt"
	"net/http"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/eventd/eventd/pkg/occurrence"
)

// terminating returns the apiserver's error for a namespace that is being deleted.
func terminating(event *corev1.Event) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "namespace " + event.Namespace + " is being terminated",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}}
}

// k/k#68393: drops of a full queue are counted. k/k#23644: so are those of a terminating
// namespace. Neither is logged.
func TestDropsAreCountedAndQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
		b, r := recordTo(&memorySink{before: terminating}, with(func(o *Options) { o.QueueCapacity = 10 }),
			WithContext(klog.NewContext(t.Context(), logger)))
		const recorded = 10_000
		recordPods(r, recorded)
		totals := drain(t, b)
		full, refused := totals.Dropped[occurrence.QueueFull], totals.Dropped[occurrence.NamespaceTerminating]
		if refused == 0 || full+refused != recorded {
			t.Errorf("ledger %+v", totals)
		}
		if lines := logger.GetSink().(ktesting.Underlier).GetBuffer().Data(); len(lines) != 0 {
			t.Errorf("%d lines are logged, such as %v", len(lines), lines[0])
		}
	})
}

// hangingEventsSink returns when the context ends, as a client does.
type hangingEventsSink struct{ newStyleSink }

func (h *hangingEventsSink) Create(ctx context.Context, _ *eventsv1.Event) (*eventsv1.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// k/k#140393: with an apiserver that does not respond, the numbers of goroutines and of
// pending Events are bounded.
func TestGoroutinesAndMemoryDoNotGrowWithLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Sink.Concurrency, o.Sink.MaxPendingSeries = 8, 100
		b, r := eventsTo(t, &hangingEventsSink{}, WithOptions(o))
		synctest.Wait()
		before := runtime.NumGoroutine()
		const recorded = 5000
		for i := range recorded {
			r.Eventf(podIn("ns", fmt.Sprint("web-", i)), nil, "Normal", "Tested", "Testing", "note %d", i)
		}
		synctest.Wait()
		if now := runtime.NumGoroutine(); now > before+2*o.Sink.Concurrency {
			t.Errorf("%d goroutines, %d before", now, before)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := b.ShutdownWithContext(ctx); err == nil {
			t.Error("nothing is reported as undelivered")
		}
		totals := settled(t, b)
		if kept := recorded - totals.Dropped[occurrence.PendingFull] - totals.Dropped[occurrence.QueueFull]; kept != 100 {
			t.Errorf("ledger %+v", totals)
		}
	})
}
