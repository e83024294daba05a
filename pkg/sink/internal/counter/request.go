package counter

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// kind is what a request does.
type Kind string

const (
	Create Kind = "create"
	Change Kind = "change" // the stored Event
	Read   Kind = "read"   // it, and change nothing
)

// access is what may be done with the Events of a namespace.
type Access struct {
	// change: a stored Event may be changed.
	Change bool
	// unmarked: admission removes our annotations, so that neither another writer nor a
	// later process can find the Event of the series.
	Unmarked bool
}

// drawn is why a name was drawn at random. Its values are metric labels.
type RandomName string

const (
	NameDerived RandomName = ""
	// occupied: foreign objects have all names that can be derived.
	NameOccupied RandomName = "occupied"
	// unmarked: admission removes our annotations, so nobody can tell whose an
	// object is under a name that can be derived.
	NameUnmarked RandomName = "annotations_removed"
	// forbidden: what is stored cannot be changed.
	NameForbidden RandomName = "forbidden"
)

// emptyPatch is a patch that changes nothing and returns the object.
var emptyPatch = []byte("{}")

// request brings the stored Event closer to what is pending.
type Request struct {
	Kind            Kind
	API             occurrence.API
	Namespace, Name string
	Event           *corev1.Event // to create
	Patch           []byte        // to change or read it
	// drawn is why the name was drawn at random for this request, "" if it was not.
	RandomName RandomName
	plan       plan
}

// baseVersion is the resourceVersion of the object that the request changes.
func (r *Request) BaseVersion() string { return r.plan.base.resourceVersion() }

const (
	draftRequest  draftOutcome = iota // make its request
	draftFull                         // use another Event: the count has no room
	draftReplayed                     // settle the batch: it was counted before
	draftRefused                      // drop the batch: it may not change the Event
)

// creates tells whether the next request is to create the Event, as far as is
// known.
func (a *Counter) Creates() bool { return a.observed == nil && !a.mustRead }

// api is the one to write what is pending through.
func (a *Counter) API() occurrence.API {
	newest := &a.pending[len(a.pending)-1].Newest
	return apiFor(newest.api, newest.Event)
}

// apiFor is the API to write an Event through that was reported through
// another. Only core/v1 lets the count of a classic Event change.
func apiFor(reported occurrence.API, event *corev1.Event) occurrence.API {
	if event.EventTime.IsZero() {
		return occurrence.CoreV1
	}
	return reported
}

func (a *Counter) eventToCreate(batch []Entry, name string, p plan) *corev1.Event {
	oldest := &batch[0].Oldest
	event := oldest.Event.DeepCopy()
	event.ObjectMeta = metav1.ObjectMeta{
		Name:            name,
		Namespace:       event.Namespace,
		Labels:          a.labels(batch),
		Annotations:     a.annotations(batch, p),
		OwnerReferences: event.OwnerReferences,
		Finalizers:      event.Finalizers,
	}
	if !event.EventTime.IsZero() {
		event.Series = nil
		if p.count > 1 {
			event.Series = &corev1.EventSeries{Count: int32(p.count), LastObservedTime: metav1.NewMicroTime(lastSeen(batch, lastObserved))}
		}
		return event
	}
	event.Series = nil // readers would take its count for the Event's
	event.Count = int32(p.count)
	if event.FirstTimestamp.IsZero() {
		event.FirstTimestamp = metav1.NewTime(oldest.Recorded)
	}
	event.LastTimestamp = metav1.NewTime(lastSeen(batch, lastTimestamp))
	if newest := newestChange(batch); newest != nil {
		event.Message = newest.Event.Message
	}
	return event
}

// eventPatch is the part of an Event that later occurrences change. It reads
// the same in both APIs: what only core/v1 has is left out for the other.
type eventPatch struct {
	Metadata      patchMetadata       `json:"metadata"`
	Count         int32               `json:"count,omitempty"`
	Message       string              `json:"message,omitempty"`
	LastTimestamp *metav1.Time        `json:"lastTimestamp,omitempty"`
	Series        *corev1.EventSeries `json:"series,omitempty"`
}

type patchMetadata struct {
	ResourceVersion string            `json:"resourceVersion"`
	Labels          map[string]string `json:"labels,omitempty"`
	Annotations     map[string]string `json:"annotations"`
}

func (a *Counter) patchFor(batch []Entry, p plan) []byte {
	patch := eventPatch{Metadata: patchMetadata{
		ResourceVersion: p.base.resourceVersion(),
		Labels:          a.labels(batch),
		Annotations:     a.annotations(batch, p),
	}}
	if batch[0].Newest.Event.EventTime.IsZero() {
		patch.Count = int32(p.count)
		if last := metav1.NewTime(lastSeen(batch, lastTimestamp)); last.After(p.base.last.Time) {
			patch.LastTimestamp = &last
		}
		if newest := newestChange(batch); newest != nil && hashOf(newest.Event.Message) != p.base.message {
			patch.Message = newest.Event.Message
		}
	} else if p.count > 1 {
		last := metav1.NewMicroTime(lastSeen(batch, lastObserved))
		if last.Before(&p.base.lastMicro) {
			last = p.base.lastMicro
		}
		patch.Series = &corev1.EventSeries{Count: int32(p.count), LastObservedTime: last}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		// A struct of strings, numbers and times always has a JSON form.
		panic(err)
	}
	return body
}

// undress leaves out of the next write what reporters have said in labels and
// annotations, of which each may be valid and all together too much. It returns
// false if there is nothing of that.
func (a *Counter) omitMetadata() bool {
	if a.bare {
		return false
	}
	batch := a.batch()
	for i := range batch {
		if batch[i].limited {
			continue
		}
		a.bare = a.bare || len(batch[i].labels) > 0 || len(batch[i].annotations) > 0
	}
	return a.bare
}

// labels are those of the whole batch; later ones win.
func (a *Counter) labels(batch []Entry) map[string]string {
	if a.bare {
		return nil
	}
	var out map[string]string
	for i := range batch {
		if batch[i].limited {
			continue
		}
		for k, v := range batch[i].labels {
			if isDirective(k) {
				continue
			}
			if out == nil {
				out = make(map[string]string)
			}
			out[k] = v
		}
	}
	return out
}

// annotations are those of the whole batch, without any that reporters must not
// set, and ours.
func (a *Counter) annotations(batch []Entry, p plan) map[string]string {
	out := make(map[string]string, 2)
	for i := range batch {
		if a.bare || batch[i].limited {
			continue
		}
		for k, v := range batch[i].annotations {
			if !strings.HasPrefix(k, identity.AnnotationPrefix) && !isDirective(k) {
				out[k] = v
			}
		}
	}
	out[identity.Annotation] = a.digest.String()
	out[Annotation] = p.contributors.String()
	return out
}

// isDirective tells whether a strategic merge patch would read a key as what to do
// with the others. No label or annotation may have it.
func isDirective(key string) bool { return strings.HasPrefix(key, "$") }

// lastTimestamp is when an occurrence happened, as far as it is known.
func lastTimestamp(c *Content) time.Time {
	if t := c.Event.LastTimestamp; !t.IsZero() {
		return t.Time
	}
	return c.Recorded
}

// lastObserved is the same for new-style Events.
func lastObserved(c *Content) time.Time {
	if s := c.Event.Series; s != nil && !s.LastObservedTime.IsZero() {
		return s.LastObservedTime.Time
	}
	return c.Event.EventTime.Time
}

// newestChange is the newest content of a batch whose reporter may change the Event,
// nil if there is none.
func newestChange(batch []Entry) *Content {
	for i := range slices.Backward(batch) {
		if !batch[i].limited {
			return &batch[i].Newest
		}
	}
	return nil
}

// lastSeen is when the newest of a batch happened: as its reporter says, or by our
// clock if the reporter may not change the Event.
func lastSeen(batch []Entry, said func(*Content) time.Time) time.Time {
	newest := &batch[len(batch)-1]
	if !newest.limited {
		return said(&newest.Newest)
	}
	last := newest.Newest.Recorded
	if c := newestChange(batch); c != nil && said(c).After(last) {
		last = said(c)
	}
	return last
}
