// Package outside uses eventd as another module does. Its module path is not below
// that of eventd, so the compiler refuses an import of internal/.
package outside

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// store is a sink.Client that keeps Events in memory.
type store struct {
	mu     sync.Mutex
	events map[types.NamespacedName]*corev1.Event
	writes int
}

var _ sink.Client = &store{}

func (s *store) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	name := types.NamespacedName{Namespace: event.Namespace, Name: event.Name}
	if s.events[name] != nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), event.Name)
	}
	stored := event.DeepCopy()
	stored.UID = types.UID(name.String())
	stored.CreationTimestamp = metav1.Now()
	return s.write(name, stored), nil
}

func (s *store) Patch(_ context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	before := s.events[key]
	if before == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("events"), name)
	}
	original, err := runtime.Encode(scheme.Codecs.LegacyCodec(corev1.SchemeGroupVersion), before)
	if err != nil {
		return nil, err
	}
	patched, err := strategicpatch.StrategicMergePatch(original, patch, corev1.Event{})
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	var after corev1.Event
	if err := runtime.DecodeInto(scheme.Codecs.UniversalDecoder(corev1.SchemeGroupVersion), patched, &after); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if after.ResourceVersion != before.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("events"), name, errors.New("it was changed"))
	}
	return s.write(key, &after), nil
}

func (s *store) write(name types.NamespacedName, event *corev1.Event) *corev1.Event {
	s.writes++
	event.ResourceVersion = fmt.Sprint(s.writes)
	s.events[name] = event
	return event.DeepCopy()
}

// Another module implements sink.Client, records occurrences that it builds, and reads
// the outcome of each and the totals.
func TestSourceAndSinkOfAnotherModule(t *testing.T) {
	written := &store{events: make(map[types.NamespacedName]*corev1.Event)}
	p, err := pipeline.New(t.Context(), pipeline.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(written); err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan occurrence.Settlement, 3)
	for range cap(outcomes) {
		p.Record(&occurrence.Occurrence{
			Event: &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "shop"},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"},
				Source:         corev1.EventSource{Component: "outside"},
				Reason:         "Restarted", Message: "seen from outside", Type: corev1.EventTypeWarning,
			},
			API: occurrence.CoreV1, Weight: 1,
			Settled: func(s occurrence.Settlement) { outcomes <- s },
		})
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(outcomes) {
		if s := <-outcomes; !s.Counted() || s.Object == nil {
			t.Errorf("an occurrence ended as %s, %s: %v", s.Outcome, s.Reason, s.Err)
		}
	}
	var totals ledger.Totals = p.Totals()
	if totals.Recorded != 3 || totals.Written() != 3 || totals.Pending() != 0 || totals.Outcomes[occurrence.Created] == 0 {
		t.Errorf("the totals are %+v", totals)
	}
	if len(written.events) != 1 {
		t.Errorf("%d Events are stored, not one", len(written.events))
	}
	for name, event := range written.events {
		if event.Count != 3 {
			t.Errorf("%s has count %d", name, event.Count)
		}
	}
}

// Another module swaps the broadcaster of client-go's tools/record, and adds a watcher.
func TestWatcherOfAnotherModule(t *testing.T) {
	broadcaster := pipeline.NewRecordBroadcaster(pipeline.WithContext(t.Context()))
	seen := make(chan *corev1.Event, 1)
	defer broadcaster.StartEventWatcher(func(event *corev1.Event) { seen <- event }).Stop()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: fake.NewClientset().CoreV1().Events("")})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "outside"}).Event(pod, corev1.EventTypeNormal, "Seen", "from outside")
	select {
	case event := <-seen:
		if event.Reason != "Seen" || event.InvolvedObject.Name != "web-0" {
			t.Errorf("the watcher received %v", event)
		}
	case <-time.After(10 * time.Second):
		t.Error("the watcher received nothing")
	}
	broadcaster.Shutdown()
}
