// Package sinktest has what tests of the sink share: Events, a fake apiserver, and a network
// that fails.
package sinktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// EventsResource is the resource in the errors of the apiserver.
var EventsResource = schema.GroupResource{Resource: "events"}

// Server is the part of an apiserver that counting relies on: names are unique, and a patch
// with a resourceVersion applies to that version only. It is not safe for concurrent use.
type Server struct {
	Objects map[string]*corev1.Event
	Expired []*corev1.Event // deleted objects, as they were
	Version int
	// Strips: admission removes all annotations from what is written.
	Strips bool
}

// NewServer returns an empty Server.
func NewServer() *Server { return &Server{Objects: map[string]*corev1.Event{}} }

// Store stores an Event as a new version, and returns a copy.
func (s *Server) Store(e *corev1.Event) *corev1.Event {
	s.Version++
	if s.Strips {
		e.Annotations = nil
	}
	e.ResourceVersion = strconv.Itoa(s.Version)
	s.Objects[e.Name] = e
	return e.DeepCopy()
}

// Create creates an Event under a name.
func (s *Server) Create(name string, event *corev1.Event) (*corev1.Event, error) {
	if s.Objects[name] != nil {
		return nil, apierrors.NewAlreadyExists(EventsResource, name)
	}
	created := event.DeepCopy()
	created.UID = types.UID(fmt.Sprint("uid-", s.Version))
	return s.Store(created), nil
}

// Get returns an Event.
func (s *Server) Get(name string) (*corev1.Event, error) {
	if s.Objects[name] == nil {
		return nil, apierrors.NewNotFound(EventsResource, name)
	}
	return s.Objects[name].DeepCopy(), nil
}

// Patch changes an Event; an empty patch is a Get.
func (s *Server) Patch(name string, patch []byte) (*corev1.Event, error) {
	stored, err := s.Get(name)
	if err != nil || string(patch) == "{}" {
		return stored, err
	}
	var p struct {
		Metadata      metav1.ObjectMeta
		Count         int32
		Message       string
		LastTimestamp *metav1.Time
		Series        *corev1.EventSeries
	}
	if err := json.Unmarshal(patch, &p); err != nil {
		return nil, err
	}
	if p.Metadata.ResourceVersion != stored.ResourceVersion {
		return nil, apierrors.NewConflict(EventsResource, name, errors.New("it has been modified"))
	}
	for k, v := range p.Metadata.Annotations {
		metav1.SetMetaDataAnnotation(&stored.ObjectMeta, k, v)
	}
	for k, v := range p.Metadata.Labels {
		metav1.SetMetaDataLabel(&stored.ObjectMeta, k, v)
	}
	if p.Message != "" {
		stored.Message = p.Message
	}
	if p.LastTimestamp != nil {
		stored.LastTimestamp = *p.LastTimestamp
	}
	if p.Count != 0 {
		stored.Count = p.Count
	}
	if p.Series != nil {
		stored.Series = p.Series
	}
	return s.Store(stored), nil
}

// Expire deletes all Events.
func (s *Server) Expire() {
	for name, e := range s.Objects {
		s.Expired = append(s.Expired, e)
		delete(s.Objects, name)
	}
}

// Counted is the sum over all Events that exist and existed.
func (s *Server) Counted() (sum int64) {
	for _, e := range s.Objects {
		sum += Count(e)
	}
	for _, e := range s.Expired {
		sum += Count(e)
	}
	return sum
}

// Count is the number of occurrences of an Event.
func Count(e *corev1.Event) int64 {
	switch {
	case e.EventTime.IsZero():
		return int64(max(1, e.Count))
	case e.Series != nil:
		return int64(max(1, e.Series.Count))
	default:
		return 1
	}
}

// Event returns an Event of a Pod, of events.k8s.io if it is new-style.
func Event(newStyle bool) *corev1.Event {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "web-0"},
		Reason:         "Pulled", Message: "image pulled", Type: "Normal",
	}
	if newStyle {
		event.EventTime = metav1.NewMicroTime(time.Unix(1_700_000_000, 0))
	}
	return event
}

// Unnamed returns an Event of a namespace with a name that the apiserver chooses, which
// both APIs accept.
func Unnamed(namespace string, newStyle bool) *corev1.Event {
	event := Event(newStyle)
	event.Namespace, event.InvolvedObject.Namespace, event.GenerateName = namespace, namespace, "e-"
	event.ReportingController, event.ReportingInstance, event.Action = "example.com/test", "test-0", "Testing"
	return event
}
