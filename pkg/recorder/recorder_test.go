package recorder

import (
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
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

var podReference = corev1.ObjectReference{
	Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "web-0", UID: "u1", ResourceVersion: "3",
}

// wantOccurrence fails unless an occurrence is as wanted, and was recorded now.
func wantOccurrence(t *testing.T, got *occurrence.Occurrence, began time.Time, want *occurrence.Occurrence) {
	t.Helper()
	if got.Recorded.Before(began) || got.Recorded.After(time.Now()) || got.Series() != identity.Of(got.Event) {
		t.Errorf("recorded at %v, in the series %v", got.Recorded, got.Series())
	}
	want.Recorded = got.Recorded
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestEvent(t *testing.T) {
	var k kept
	before := time.Now()
	New(&k, scheme.Scheme, source).AnnotatedEventf(pod, map[string]string{"a": "b"}, "Warning", "BackOff", "back-off %d", 5)
	o := k.published[0]
	recorded := metav1.NewTime(o.Recorded)
	wantOccurrence(t, o, before, &occurrence.Occurrence{Weight: 1, API: occurrence.CoreV1, Event: &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Annotations: map[string]string{"a": "b"}},
		InvolvedObject: podReference, Source: source, Count: 1, FirstTimestamp: recorded, LastTimestamp: recorded,
		Type: "Warning", Reason: "BackOff", Message: "back-off 5",
		ReportingController: "controller", ReportingInstance: "node-1",
	}})
}

type panics struct{}

func (panics) String() string { panic("no") }

// Callers pass a typed nil pointer by accident.
func TestRecordingNeverPanics(t *testing.T) {
	var k kept
	classic, newStyle := recorders(&k)
	for _, object := range []runtime.Object{nil, (*corev1.Pod)(nil), &runtime.Unknown{}, (*corev1.ObjectReference)(nil)} {
		classic.Event(object, "Normal", "R", "")
		newStyle.Eventf(object, object, "Normal", "R", "A", "%s", panics{})
	}
	classic.Event(pod, "Unusual", "R", "")
	newStyle.Eventf(pod, nil, "Unusual", "R", "A", "")
	NewEvents(&k, occurrence.EventsV1, nil, "controller").Eventf(&corev1.Pod{}, nil, "Normal", "R", "A", "") // no scheme
	if len(k.refused) != 11 || len(k.published) != 0 {
		t.Errorf("refused %v, published %d", k.refused, len(k.published))
	}
	classic.Eventf(pod, "Normal", "R", "%s", panics{})
	newStyle.Eventf(pod, nil, "Normal", "R", "A", "%v %d", panicsAgain{})
	if len(k.published) != 2 {
		t.Errorf("published %d", len(k.published))
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
				for _, object := range []runtime.Object{pod, node, &appsv1.Deployment{}} {
					r.WithLogger(klog.Background()).Eventf(object, "Normal", "Reason", "message")
				}
			}
		})
	}
	wg.Wait()
	if len(k.published) != 3*800 {
		t.Errorf("published %d", len(k.published))
	}
}
