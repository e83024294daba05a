package recorder

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// recorded is what both kinds of recorders keep of a report until it is behind
// the queue, in one piece of memory. The Event itself is much larger, and what
// recording costs its caller is mostly allocating.
type recorded struct {
	occurrence occurrence.Occurrence
	object     object
	reason     string
	// message is what was given as it is, or is too long for text. Otherwise
	// it is in the first bytes of text.
	message string
	length  uint8
	warning bool
	text    [54]byte
	// name of the Event, once somebody has asked for it.
	name atomic.Pointer[string]
}

// Type implements occurrence.Origin.
func (r *recorded) Type() string {
	if r.warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// Name implements occurrence.Origin.
func (r *recorded) Name(event *corev1.Event) string {
	if name := r.name.Load(); name != nil {
		return *name
	}
	name := identity.Name(event.InvolvedObject.Name, identity.Of(event), 0)
	r.name.Store(&name)
	return name
}

// namespace is where the Event is stored. The apiserver wants those of
// cluster-scoped objects in the namespace default; client-go does the same for
// both kinds of Events.
func (r *recorded) namespace() string {
	if r.object.namespace != "" {
		return r.object.namespace
	}
	return metav1.NamespaceDefault
}

// say sets the message, in at most limit bytes.
func (r *recorded) say(message string, limit int, repairs *Repairs) {
	r.message = repairs.cut(repairs.text(message), limit, repairMessageCut)
}

// sayf sets the message to what fmt.Sprintf makes. That shows arguments whose
// methods panic, but panics itself if what they panic with cannot be shown
// either; then the message is the format.
func (r *recorded) sayf(format string, args []any, limit int, repairs *Repairs) {
	if len(args) == 0 && strings.IndexByte(format, '%') < 0 {
		r.say(format, limit, repairs)
		return
	}
	var stack [256]byte // most messages fit, and are allocated once or not at all
	message, ok := appendf(stack[:0], format, args)
	switch {
	case !ok:
		repairs.count(repairUnformattable)
		r.say(format, limit, repairs)
	case len(message) <= len(r.text) && utf8.Valid(message):
		r.length = uint8(copy(r.text[:], message))
	default:
		r.say(string(message), limit, repairs)
	}
}

// said is the message.
func (r *recorded) said() string {
	if r.length > 0 {
		return string(r.text[:r.length])
	}
	return r.message
}
