package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"

	"github.com/eventd/eventd/test/await"
)

// What client-go's broadcaster does (tools/record/event.go): the length of its queue, and its retries when
// there is no answer.
const (
	maxQueuedEvents  = 1000
	maxTriesPerEvent = 12
	sleepDuration    = 10 * time.Second
)

// tally is what became of the Events of all reporters.
type tally struct {
	recorded   atomic.Int64
	skipped    atomic.Int64 // by the correlators of the reporters
	overflowed atomic.Int64 // dropped since the queue of a reporter was full
	answered   atomic.Int64 // with success
	refused    atomic.Int64 // given up after an answer with an error
	lost       atomic.Int64 // given up without an answer
}

// reporter is an EventBroadcaster of client-go and its sink: it has client-go's correlator, sends one Event
// after the other, and drops what its queue has no place for. In place of two goroutines and a queue of
// 1,000, it has a goroutine while it has something to send. It is safe for use by many goroutines.
type reporter struct {
	source     corev1.EventSource
	sink       record.EventSink
	correlator *record.EventCorrelator // nil for a new-style broadcaster, which has no limits
	tally      *tally

	mu      sync.Mutex
	queue   []*corev1.Event
	sending bool
}

// report queues an Event. Its goroutine is one of running.
func (r *reporter) report(ctx context.Context, running *sync.WaitGroup, e *corev1.Event) {
	r.tally.recorded.Add(1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.queue) == maxQueuedEvents {
		r.tally.overflowed.Add(1)
		return
	}
	r.queue = append(r.queue, e)
	if !r.sending {
		r.sending = true
		running.Go(func() { r.send(ctx) })
	}
}

// send sends all that is queued.
func (r *reporter) send(ctx context.Context) {
	for {
		r.mu.Lock()
		if len(r.queue) == 0 || ctx.Err() != nil {
			r.queue, r.sending = nil, false
			r.mu.Unlock()
			return
		}
		e := r.queue[0]
		r.queue = r.queue[1:]
		r.mu.Unlock()
		r.recordToSink(ctx, e)
	}
}

// recordToSink is that of client-go.
func (r *reporter) recordToSink(ctx context.Context, e *corev1.Event) {
	result := &record.EventCorrelateResult{Event: e}
	if r.correlator != nil {
		var err error
		if result, err = r.correlator.EventCorrelate(e); err != nil || result.Skip {
			r.tally.skipped.Add(1)
			return
		}
	}
	for try := 1; ; try++ {
		stored, err := r.write(result)
		_, answered := errors.AsType[*apierrors.StatusError](err)
		switch {
		case err == nil:
			r.tally.answered.Add(1)
			if r.correlator != nil {
				r.correlator.UpdateState(stored)
			}
			return
		case answered: // it is not retried
			r.tally.refused.Add(1)
			return
		case try == maxTriesPerEvent || ctx.Err() != nil:
			r.tally.lost.Add(1)
			return
		}
		delay := sleepDuration
		if try == 1 {
			delay = time.Duration(rand.Float64() * float64(delay))
		}
		_ = await.Sleep(ctx, delay) // its end is noticed above
	}
}

func (r *reporter) write(result *record.EventCorrelateResult) (*corev1.Event, error) {
	if result.Event.Count > 1 {
		stored, err := r.sink.Patch(result.Event, result.Patch)
		if !util.IsKeyNotFoundError(err) {
			return stored, err
		}
	}
	result.Event.ResourceVersion = ""
	return r.sink.Create(result.Event)
}

// event is what client-go's recorder makes (makeEvent).
func event(o *occurrence) *corev1.Event {
	now := metav1.Now()
	ref := o.about
	namespace := ref.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: util.GenerateEventName(ref.Name, now.UnixNano()), Namespace: namespace},
		InvolvedObject: ref, Type: o.kind, Reason: o.reason, Message: o.message(),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: o.by.source, ReportingController: o.by.source.Component, ReportingInstance: o.by.source.Host,
	}
}

// message writes the message of an occurrence.
func (o *occurrence) message() string {
	if o.detail == "" {
		return o.text
	}
	return fmt.Sprintf(o.text, o.detail)
}
