package recorder

import (
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// kept keeps what is published, with the Event built.
type kept struct {
	mu        sync.Mutex
	published []*occurrence.Occurrence
	refused   []occurrence.Reason
}

func (k *kept) Publish(o *occurrence.Occurrence) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.published = append(k.published, o.WithEvent())
}

func (k *kept) Refuse(r occurrence.Reason) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.refused = append(k.refused, r)
}

var (
	source = corev1.EventSource{Component: "controller", Host: "node-1"}
	pod    = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web-0", UID: "u1", ResourceVersion: "3"}}
	node   = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
)

func TestEvent(t *testing.T) {
	var k kept
	r := New(&k, scheme.Scheme, source)
	before := time.Now()
	annotations := map[string]string{"a": "b"}
	r.AnnotatedEventf(pod, annotations, "Warning", "BackOff", "back-off %d", 5)
	annotations["a"] = "changed by the caller"
	o := k.published[0]
	e := o.Event
	if e.Namespace != "ns" || e.InvolvedObject.Kind != "Pod" || e.InvolvedObject.UID != "u1" || e.Type != "Warning" ||
		e.Reason != "BackOff" || e.Message != "back-off 5" || e.Source != source || e.ReportingController != "controller" ||
		e.ReportingInstance != "node-1" || e.Count != 1 || e.FirstTimestamp.IsZero() || e.LastTimestamp.IsZero() ||
		e.Annotations["a"] != "b" {
		t.Errorf("recorded %+v", e)
	}
	if o.Weight != 1 || o.API != occurrence.CoreV1 || o.Series() != identity.Of(e) || o.Recorded.Before(before) {
		t.Errorf("occurrence %+v", o)
	}
}

func TestEventsOfClusterScopedObjectsAreInDefault(t *testing.T) {
	var k kept
	New(&k, scheme.Scheme, source).Event(node, "Normal", "Ready", "it is")
	if got := k.published[0].Event.Namespace; got != "default" {
		t.Errorf("namespace %q", got)
	}
}

type panics struct{}

func (panics) String() string { panic("no") }

// Callers pass a typed nil pointer by accident.
func TestRecordingNeverPanics(t *testing.T) {
	var k kept
	r := New(&k, scheme.Scheme, source).WithLogger(klog.Background())
	var nilPod *corev1.Pod
	for _, object := range []runtime.Object{nil, nilPod, &runtime.Unknown{}, (*corev1.ObjectReference)(nil)} {
		r.Event(object, "Normal", "Reason", "message")
	}
	r.Event(pod, "Unusual", "Reason", "message")
	if len(k.refused)+len(k.published) != 5 || len(k.refused) < 4 {
		t.Errorf("refused %v, published %d", k.refused, len(k.published))
	}
	r.Eventf(pod, "Normal", "Reason", "%s", panics{})
	r.Event(pod, "Normal", "Reason\xff", "message\xff")
	last := k.published[len(k.published)-1].Event
	if last.Reason != "Reason\uFFFD" || last.Message != "message\uFFFD" {
		t.Errorf("invalid UTF-8 is recorded as %q, %q", last.Reason, last.Message)
	}
}

func TestSourceMaySetTheSeries(t *testing.T) {
	var k kept
	first := &corev1.Event{Reason: "as it began"}
	Record(&k, &occurrence.Occurrence{Event: &corev1.Event{}, Begun: first})
	if got := k.published[0]; got.Begun != first || got.Recorded.IsZero() {
		t.Errorf("published %+v", got)
	}
}

func TestRecordersAreSafeForConcurrentUse(t *testing.T) {
	var k kept
	r := New(&k, scheme.Scheme, source)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 100 {
				r.WithLogger(klog.Background()).Eventf(pod, "Normal", "Reason", "message")
			}
		})
	}
	wg.Wait()
	if len(k.published) != 800 {
		t.Errorf("published %d", len(k.published))
	}
}

// A caller may change its annotations while the occurrence is queued.
func TestAnnotationsAreThoseOfTheCall(t *testing.T) {
	var q queue
	annotations := map[string]string{"a": "b"}
	New(&q, scheme.Scheme, source).AnnotatedEventf(pod, annotations, "Warning", "BackOff", "")
	annotations["a"] = "changed by the caller"
	if got := q[0].WithEvent().Event.Annotations["a"]; got != "b" {
		t.Errorf("the annotation is %q", got)
	}
}
