package counter

import (
	"hash/maphash"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
)

// observation is the stored Event as far as later writes depend on it.
type observation struct {
	meta         *corev1.Event // name, UID, resourceVersion and creationTimestamp; only the version if recalled
	id           EventID
	count        int64
	contributors contributors
	message      uint64    // its hash, which is enough to compare it
	last         time.Time // of the last occurrence
	// recalled: it is from a state, so no answer has shown it to this Counter. See State.
	recalled bool
}

func (o *observation) resourceVersion() string { return o.meta.ResourceVersion }

// IsMarked reports whether an object has the annotation of the series.
func (c *Counter) IsMarked(event *corev1.Event) bool {
	return event.Annotations[identity.Annotation] == c.digest.String()
}

// observe reads an object; marked reports whether its annotations are those of the series.
func (c *Counter) observe(event *corev1.Event) (o *observation, marked bool) {
	o = &observation{
		id: EventIDOf(event),
		meta: &corev1.Event{ObjectMeta: metav1.ObjectMeta{
			Name:              event.Name,
			Namespace:         event.Namespace,
			UID:               event.UID,
			ResourceVersion:   event.ResourceVersion,
			CreationTimestamp: event.CreationTimestamp,
		}},
		count:   countOf(event),
		message: hashOf(event.Message),
		last:    (&Content{Event: event}).lastTime(),
	}
	if !c.IsMarked(event) {
		return o, false
	}
	var err error
	o.contributors, err = parseContributors(event.Annotations[Annotation])
	return o, err == nil
}

// EventID is the hash of an Event's UID in this process, which is enough to compare it.
type EventID uint64

// EventIDOf returns the ID of a stored Event.
func EventIDOf(event *corev1.Event) EventID { return EventID(hashOf(string(event.UID))) }

var seed = maphash.MakeSeed()

// hashOf returns the hash of a message, a user or a UID. It is secret, so nobody can choose one with
// the hash of another.
func hashOf(text string) uint64 { return maphash.String(seed, text) }

// countOf returns the count of an Event.
func countOf(event *corev1.Event) int64 {
	switch {
	case event.EventTime.IsZero():
		return int64(max(1, event.Count))
	case event.Series != nil:
		return int64(max(1, event.Series.Count))
	default:
		return 1
	}
}
