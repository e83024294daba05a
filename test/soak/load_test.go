package soak

import (
	"context"
	"fmt"
	"runtime/metrics"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/test/await"
)

// load records occurrences, of new series and of old ones, and counts them. It is for
// one goroutine at a time.
type load struct {
	recorder  record.EventRecorder
	namespace string
	series    int // but the hot ones
	recorded  counts
}

const hotSeries = 10

// everything records as a controller does: new series, if allowed, and old ones.
func (l *load) everything(newToo bool) {
	if newToo {
		l.record(fmt.Sprint("pod-", l.series))
		l.series++
	}
	l.record(fmt.Sprint("hot-", l.series%hotSeries))
	if newToo && l.series%4 == 0 {
		l.record(fmt.Sprint("pod-", l.series/2))
	}
}

func (l *load) record(name string) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: l.namespace, Name: name}}
	l.recorder.Event(pod, corev1.EventTypeNormal, "Tested", "it was tested by somebody who says so at some length")
	l.recorded[object{l.namespace, name}]++
}

// goOn calls everything at a rate until end is called. It records new series only
// while mayAdd is true.
func (l *load) goOn(perSecond float64, mayAdd func() bool) (end func()) {
	began, n := time.Now(), 0.0
	return await.Every(20*time.Millisecond, func(context.Context) {
		newToo := mayAdd()
		for ; n < perSecond*time.Since(began).Seconds(); n++ {
			l.everything(newToo)
		}
	})
}

// liveHeap is that as of the last collection.
func liveHeap() int64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}
