// Package recorder implements the recorders of client-go's tools/record and tools/events.
// They publish what a process reports as occurrences. Package pipeline creates them.
//
// Recording does no I/O, never panics and returns no error. A field that the apiserver
// would refuse is repaired, and the repair is counted. If no Event can be built, the
// occurrence is dropped as malformed. All types are safe for use by many goroutines,
// also before the start and after the shutdown of a pipeline. The package starts no
// goroutines.
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

// Publisher receives occurrences, as a broadcaster.Broadcaster does. It must be safe for
// use by many goroutines, and should not block: recording waits for it.
type Publisher interface {
	Publish(*occurrence.Occurrence)
	// Refuse counts an occurrence of which no Event could be built.
	Refuse(occurrence.Reason)
}

// Record sets the time of an occurrence that a source built, and publishes it.
func Record(p Publisher, o *occurrence.Occurrence) {
	o.Recorded = time.Now()
	p.Publish(o)
}

// base has the fields of both kinds of recorders.
type base struct {
	publisher Publisher
	kinds     *kinds
	logger    klog.Logger
	repairs   *Repairs
}

// begin sets what both kinds of Events have. If no Event can be built, it counts that
// and returns false.
func (b *base) begin(r *recorded, object runtime.Object, eventtype, reason string) bool {
	if !util.ValidateEventType(eventtype) {
		b.refuse("Event not recorded: unknown type", reason, fmt.Errorf("type %q", eventtype))
		return false
	}
	if err := b.kinds.refer(&r.object, object); err != nil {
		b.refuse("Event not recorded: its object cannot be referenced", reason, err)
		return false
	}
	if r.object.namespace == "" {
		b.repairs.count(repairClusterScoped)
	}
	r.warning = eventtype == corev1.EventTypeWarning
	r.reason = b.repairs.text(reason)
	return true
}

func (b *base) refuse(message, reason string, err error) {
	b.logger.V(4).Info(message, "reason", reason, "err", err)
	b.publisher.Refuse(occurrence.Malformed)
}
