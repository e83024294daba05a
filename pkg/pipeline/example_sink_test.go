package pipeline_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
)

// store is a sink.Client that keeps Events in memory. As an apiserver does, it
// assigns UIDs and resourceVersions, and returns the errors AlreadyExists, NotFound
// and Conflict: with these, counts are exact.
type store struct {
	mu      sync.Mutex
	events  map[types.NamespacedName]*corev1.Event
	version int
}

func (s *store) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: event.Namespace, Name: event.Name}
	if s.events[key] != nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), event.Name)
	}
	created := event.DeepCopy()
	created.UID, created.CreationTimestamp = uuid.NewUUID(), metav1.Now()
	return s.put(key, created), nil
}

func (s *store) Patch(_ context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: namespace, Name: name}
	stored := s.events[key]
	if stored == nil {
		return nil, apierrors.NewNotFound(corev1.Resource("events"), name)
	}
	patched, err := apply(stored, patch)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if patched.UID != stored.UID || patched.ResourceVersion != stored.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("events"), name, errors.New("it was changed"))
	}
	return s.put(key, patched), nil
}

func (s *store) put(key types.NamespacedName, event *corev1.Event) *corev1.Event {
	s.version++
	event.ResourceVersion = strconv.Itoa(s.version)
	s.events[key] = event
	return event.DeepCopy()
}

// apply returns the Event that a strategic merge patch makes of another.
func apply(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	before, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Event{})
	if err != nil {
		return nil, err
	}
	patched := new(corev1.Event)
	return patched, json.Unmarshal(after, patched)
}

// A Pipeline writes to any sink.Client, here to one that keeps Events in memory.
func ExamplePipeline_StartSink() {
	ctx := context.Background()
	events := &store{events: make(map[types.NamespacedName]*corev1.Event)}
	p, err := pipeline.New(ctx, pipeline.DefaultOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := p.StartSink(events); err != nil {
		fmt.Println(err)
		return
	}
	recorder := p.NewRecorder(nil, corev1.EventSource{Component: "my-controller"})
	pod := &corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: "shop", Name: "web-0"}
	for range 3 {
		recorder.Event(pod, corev1.EventTypeWarning, "BackOff", "back-off restarting container")
	}
	if err := p.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	for _, event := range events.events {
		fmt.Println(event.Reason, event.Count)
	}
	// Output: BackOff 3
}

// A source that is no recorder, such as a receiver of another protocol, builds its
// occurrences, and is called back with the outcome of each. In a cluster, the client
// is that of sink.NewClientForConfig.
func ExamplePipeline_Record() {
	ctx := context.Background()
	p, err := pipeline.New(ctx, pipeline.DefaultOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := p.StartSink(&store{events: make(map[types.NamespacedName]*corev1.Event)}); err != nil {
		fmt.Println(err)
		return
	}
	p.Record(&occurrence.Occurrence{
		API:    occurrence.CoreV1,
		Weight: 1, // it happened once
		Event: &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"},
			Source:         corev1.EventSource{Component: "my-source"},
			Type:           corev1.EventTypeWarning, Reason: "LinkDown", Message: "carrier lost on eth0",
		},
		Settled: func(s occurrence.Settlement) { fmt.Println("outcome:", s.Outcome) },
	})
	if err := p.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	totals := p.Totals()
	fmt.Println("recorded:", totals.Recorded, "written:", totals.Written(), "pending:", totals.Pending())
	// Output:
	// outcome: created
	// recorded: 1 written: 1 pending: 0
}
