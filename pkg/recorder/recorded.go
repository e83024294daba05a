package recorder

import (
	"strings"
	"sync/atomic"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

// recorded has what both kinds of recorders keep of an Event while it is queued. It is
// one allocation, and much smaller than the Event: most of the time of recording is
// allocation.
type recorded struct {
	occurrence occurrence.Occurrence
	object     object
	reason     string
	// A formatted message of up to len(text) bytes is in text[:length]. Any other
	// is in message, and length is 0.
	message string
	length  uint8
	warning bool
	text    [54]byte
	shared  atomic.Pointer[occurrence.Shared] // nil until a watcher reads it
}

// Type implements occurrence.Origin.
func (r *recorded) Type() string {
	if r.warning {
		return corev1.EventTypeWarning
	}
	return corev1.EventTypeNormal
}

// share returns the Event that is shared: the given one, unless another was first.
func (r *recorded) share(event *corev1.Event) *occurrence.Shared {
	r.shared.CompareAndSwap(nil, occurrence.NewShared(event))
	return r.shared.Load()
}

// namespace returns the namespace of the Event. For cluster-scoped objects the apiserver
// requires default, and client-go uses it for both kinds of Events.
func (r *recorded) namespace() string {
	if r.object.namespace != "" {
		return r.object.namespace
	}
	return metav1.NamespaceDefault
}

// setMessage sets the message, cut to limit bytes.
func (r *recorded) setMessage(message string, limit int, repairs *Repairs) {
	r.message = repairs.cut(repairs.text(message), limit, repairMessageCut)
}

// formatMessage sets the message to the result of fmt.Sprintf, cut to limit bytes. Sprintf
// recovers panics of an argument's methods, but not one whose value panics again when it
// is formatted. Then the message is the format.
func (r *recorded) formatMessage(format string, args []any, limit int, repairs *Repairs) {
	if len(args) == 0 && strings.IndexByte(format, '%') < 0 {
		r.setMessage(format, limit, repairs)
		return
	}
	var stack [256]byte // most messages fit
	message, ok := appendf(stack[:0], format, args)
	switch {
	case !ok:
		repairs.count(repairUnformattable)
		r.setMessage(format, limit, repairs)
	case len(message) <= len(r.text) && utf8.Valid(message):
		r.length = uint8(copy(r.text[:], message))
	default:
		r.setMessage(string(message), limit, repairs)
	}
}

// eventMessage returns the message.
func (r *recorded) eventMessage() string {
	if r.length > 0 {
		return string(r.text[:r.length])
	}
	return r.message
}
