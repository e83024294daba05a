package occurrence

import (
	"sync/atomic"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/eventd/eventd/internal/identity"
)

// Shared is an Event that many goroutines read, and nobody changes: a reader that wants another
// one makes a copy, as with client-go.
type Shared struct {
	core   *corev1.Event
	events atomic.Pointer[eventsv1.Event] // nil until EventsV1
}

// NewShared returns an Event to share. It sets the name under which the Event is stored, unless
// another object has that name. The caller must not change the Event afterwards.
func NewShared(event *corev1.Event) *Shared {
	event.Name = identity.Name(event.InvolvedObject.Name, identity.Of(event), 0)
	return &Shared{core: event}
}

// CoreV1 returns the Event in the form of core/v1, the same for all callers.
func (s *Shared) CoreV1() *corev1.Event { return s.core }

// EventsV1 returns the Event in the form of events.k8s.io/v1, the same for all callers.
func (s *Shared) EventsV1() *eventsv1.Event {
	if event := s.events.Load(); event != nil {
		return event
	}
	s.events.CompareAndSwap(nil, identity.ToEventsV1(s.core))
	return s.events.Load()
}
