package rules

import (
	"crypto/sha256"
	"encoding/binary"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// A Throttle is that of a route. It does not change, and is safe for concurrent use.
type Throttle struct {
	interval time.Duration
	by       []string
}

func newThrottle(from *v1alpha1.Throttle) *Throttle {
	if from == nil {
		return nil
	}
	return &Throttle{from.Interval.Duration, from.By}
}

// Interval is the time in which a receiver gets one Event of a group.
func (t *Throttle) Interval() time.Duration { return t.interval }

// Group identifies the group of an Event, which it only reads. Its size does not depend on what a
// tenant wrote.
func (t *Throttle) Group(event *corev1.Event) [sha256.Size]byte {
	var text []byte
	for _, name := range t.by {
		value := readField(event, name)
		if name == "involvedObject.uid" && value == "" { // it is optional
			o := &event.InvolvedObject
			value = strings.Join([]string{o.GroupVersionKind().Group, o.Kind, o.Namespace, o.Name}, "/")
		}
		text = binary.AppendUvarint(text, uint64(len(value))) // so that two fields are never one other
		text = append(text, value...)
	}
	return sha256.Sum256(text)
}

// Throttle returns that of the route which delivers to the receiver, or nil.
func (f *Filter) Throttle(route string) *Throttle {
	if !f.throttled { // nearly always
		return nil
	}
	for _, s := range f.steps {
		if s.name == route {
			return s.throttle
		}
	}
	return nil
}
