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
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/occurrence"
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

// maker is what both kinds of recorders have in common.
type maker struct {
	publisher Publisher
	kinds     *kinds
	logger    klog.Logger
	repairs   *Repairs
}

// admit begins with what both kinds of Events have. If there can be no Event, it
// counts that and returns false.
func (m *maker) admit(r *recorded, object runtime.Object, eventtype, reason string) bool {
	if !util.ValidateEventType(eventtype) {
		m.refuse("Event not recorded: unknown type", reason, fmt.Errorf("type %q", eventtype))
		return false
	}
	if err := m.kinds.refer(&r.object, object); err != nil {
		m.refuse("Event not recorded: no reference to its object", reason, err)
		return false
	}
	if r.object.namespace == "" {
		m.repairs.count(repairClusterScoped)
	}
	r.warning = eventtype == corev1.EventTypeWarning
	r.reason = m.repairs.text(reason)
	return true
}

func (m *maker) refuse(message, reason string, err error) {
	m.logger.V(4).Info(message, "reason", reason, "err", err)
	m.publisher.Refuse(occurrence.Malformed)
}
