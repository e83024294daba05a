// Package recorder makes occurrences out of what a process reports, and hands
// them on.
//
// Recording does no I/O, never panics and never fails towards its caller: what
// the apiserver would refuse is repaired if it can be, and counted; what cannot
// become an Event is counted as dropped. All types are safe for use by many
// goroutines, before anything is started and after everything was shut down.
// The package starts no goroutines.
package recorder

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/occurrence"
)

// Publisher takes occurrences. Recording waits for it, so it should not block.
type Publisher interface {
	Publish(*occurrence.Occurrence)
	// Refuse counts an occurrence that did not become an Event.
	Refuse(occurrence.Reason)
}

// Record stamps an occurrence that a source made and publishes it.
func Record(p Publisher, o *occurrence.Occurrence) {
	o.Recorded = time.Now()
	p.Publish(o)
}

// recorded is an occurrence and its Event in one piece of memory.
type recorded struct {
	occurrence occurrence.Occurrence
	event      corev1.Event
}

// maker is what both kinds of recorders have in common.
type maker struct {
	publisher Publisher
	scheme    *runtime.Scheme
	logger    klog.Logger
	repairs   *Repairs
}

// admit resolves what an Event is about. If there can be no Event, it counts
// that and returns nil.
func (m *maker) admit(object runtime.Object, eventtype, reason string) *corev1.ObjectReference {
	if !util.ValidateEventType(eventtype) {
		m.refuse("Event not recorded: unknown type", reason, fmt.Errorf("type %q", eventtype))
		return nil
	}
	ref, err := m.reference(object)
	if err != nil {
		m.refuse("Event not recorded: no reference to its object", reason, err)
		return nil
	}
	return ref
}

func (m *maker) refuse(message, reason string, err error) {
	m.logger.V(4).Info(message, "reason", reason, "err", err)
	m.publisher.Refuse(occurrence.Malformed)
}

// reference is tools/reference, which dereferences what it is given and hands
// references back as they are, nil ones too.
func (m *maker) reference(object runtime.Object) (ref *corev1.ObjectReference, err error) {
	defer func() {
		if p := recover(); p != nil {
			ref, err = nil, fmt.Errorf("a %T cannot be looked at", object)
		}
	}()
	if ref, err = reference.GetReference(m.scheme, object); err == nil && ref == nil {
		err = reference.ErrNilObject
	}
	return ref, err
}

// format is fmt.Sprintf, which shows arguments whose methods panic, but panics
// itself if what they panic with cannot be shown either.
func (m *maker) format(format string, args []any) (message string) {
	if len(args) == 0 && strings.IndexByte(format, '%') < 0 {
		return format
	}
	defer func() {
		if recover() != nil {
			m.repairs.count(repairUnformattable)
			message = format
		}
	}()
	return fmt.Sprintf(format, args...)
}
