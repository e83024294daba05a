package counter

import (
	"encoding/json"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Kind is what a request does.
type Kind string

// The kinds of requests.
const (
	Create Kind = "create"
	Change Kind = "change" // of the stored Event
	Read   Kind = "read"
)

// Access is what may be done with the Events of a namespace.
type Access struct {
	// Change: a stored Event may be changed.
	Change bool
	// Unmarked: admission removes the annotations, so neither another writer nor a later
	// process can find the Event of the series.
	Unmarked bool
}

// RandomName is why an Event gets a random name. Its values are metric labels.
type RandomName string

// The reasons for a random name.
const (
	// NameDerived is no random name.
	NameDerived RandomName = ""
	// NameOccupied: foreign objects have all names that can be derived.
	NameOccupied RandomName = "occupied"
	// NameUnmarked: admission removes the annotations, so it is unknown whose an object is
	// under a name that can be derived.
	NameUnmarked RandomName = "annotations_removed"
	// NameForbidden: the stored Event may not be changed.
	NameForbidden RandomName = "forbidden"
)

// emptyPatch is a patch that changes nothing and returns the object.
var emptyPatch = []byte("{}")

// Request is a request that adds pending occurrences to the stored Event, or reads it.
type Request struct {
	Kind            Kind
	API             occurrence.API
	Namespace, Name string
	Event           *corev1.Event // to create
	Patch           []byte        // to change or read it
	// RandomName is why a random name was drawn for this request, "" if it was not.
	RandomName RandomName
	plan       plan
	carried    uint64 // by the writes before it
}

// BaseVersion returns the resourceVersion of the object that the request changes.
func (r *Request) BaseVersion() string { return r.plan.base.resourceVersion() }

// Creates reports whether the next request creates the Event, as far as is known.
func (c *Counter) Creates() bool { return c.observed == nil && !c.mustRead }

// API returns the API of the next request. Something must be pending.
func (c *Counter) API() occurrence.API {
	newest := &c.pending[len(c.pending)-1].Newest
	return apiFor(newest.API, newest.Event)
}

// apiFor returns the API of the write of an Event that was reported through another. Only
// core/v1 lets the count of a classic Event change.
func apiFor(reported occurrence.API, event *corev1.Event) occurrence.API {
	if event.EventTime.IsZero() {
		return occurrence.CoreV1
	}
	return reported
}

func (c *Counter) eventToCreate(batch []Entry, name string, p plan) *corev1.Event {
	oldest := &batch[0].Oldest
	event := oldest.Event.DeepCopy()
	event.ObjectMeta = metav1.ObjectMeta{
		Name:            name,
		Namespace:       event.Namespace,
		Labels:          c.labels(batch),
		Annotations:     c.annotations(batch, p),
		OwnerReferences: event.OwnerReferences,
		Finalizers:      event.Finalizers,
	}
	if !event.EventTime.IsZero() {
		event.Series = nil
		if p.count > 1 {
			event.Series = &corev1.EventSeries{Count: int32(p.count), LastObservedTime: metav1.NewMicroTime(lastSeen(batch))}
		}
		return event
	}
	event.Series = nil // readers would use its count as that of the Event
	event.Count = int32(p.count)
	if event.FirstTimestamp.IsZero() {
		event.FirstTimestamp = metav1.NewTime(oldest.Recorded)
	}
	event.LastTimestamp = metav1.NewTime(lastSeen(batch))
	if newest := newestChange(batch); newest != nil {
		event.Message = newest.Event.Message
	}
	return event
}

// eventPatch is the part of an Event that later occurrences change. Both APIs read it the
// same: it omits what only core/v1 has for new-style Events.
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

func (c *Counter) patchFor(batch []Entry, p plan) []byte {
	patch := eventPatch{Metadata: patchMetadata{
		ResourceVersion: p.base.resourceVersion(),
		Labels:          c.labels(batch),
		Annotations:     c.annotations(batch, p),
	}}
	last := p.base.lastAfter(batch)
	if batch[0].Newest.Event.EventTime.IsZero() {
		patch.Count = int32(p.count)
		if !last.Equal(p.base.last) {
			patch.LastTimestamp = &metav1.Time{Time: last}
		}
		if newest := newestChange(batch); newest != nil && hashOf(newest.Event.Message) != p.base.message {
			patch.Message = newest.Event.Message
		}
	} else if p.count > 1 {
		patch.Series = &corev1.EventSeries{Count: int32(p.count), LastObservedTime: metav1.NewMicroTime(last)}
	}
	body, err := json.Marshal(patch)
	if err != nil {
		// A struct of strings, numbers and times always has a JSON form.
		panic(err)
	}
	return body
}

// omitMetadata has the next write omit the labels and annotations of reporters, which may be
// valid one by one and too large together. It returns false if there are none.
func (c *Counter) omitMetadata() bool {
	if c.bare {
		return false
	}
	batch := c.batch()
	for i := range batch {
		if batch[i].limited {
			continue
		}
		c.bare = c.bare || len(batch[i].labels) > 0 || len(batch[i].annotations) > 0
	}
	return c.bare
}

// labels returns the labels of the whole batch; later ones win.
func (c *Counter) labels(batch []Entry) map[string]string {
	if c.bare {
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

// annotations returns those of the whole batch, without reserved ones, and those of the counter.
func (c *Counter) annotations(batch []Entry, p plan) map[string]string {
	out := make(map[string]string, 2)
	for i := range batch {
		if c.bare || batch[i].limited {
			continue
		}
		for k, v := range batch[i].annotations {
			if !strings.HasPrefix(k, identity.AnnotationPrefix) && !isDirective(k) {
				out[k] = v
			}
		}
	}
	out[identity.Annotation] = c.digest.String()
	out[Annotation] = p.contributors.String()
	return out
}

// isDirective reports whether a strategic merge patch would interpret a key. No label or
// annotation may have it.
func isDirective(key string) bool { return strings.HasPrefix(key, "$") }

// lastTime returns when an occurrence was seen: the latest time that its Event has, or the time of this process if the
// reporter of a classic Event does not say when. A reporter may have its times in the fields of the other style too.
func (c *Content) lastTime() time.Time {
	e := c.Event
	last := later(e.LastTimestamp.Time, e.EventTime.Time)
	if e.Series != nil {
		last = later(last, e.Series.LastObservedTime.Time)
	}
	if last.IsZero() {
		return c.Recorded
	}
	return last
}

func later(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}

// newestChange returns the newest content of a batch whose reporter may change the Event, nil if
// there is none.
func newestChange(batch []Entry) *Content {
	for i := len(batch) - 1; i >= 0; i-- { // a copy of an entry would also read what Acknowledge writes
		if !batch[i].limited {
			return &batch[i].Newest
		}
	}
	return nil
}

// lastSeen returns the time of the latest occurrence of a batch: as reported, or by the clock of this process if the
// reporter may not change the Event. The newest one may be of a reporter that was late.
func lastSeen(batch []Entry) (last time.Time) {
	for i := range batch {
		newest := &batch[i].Newest
		if batch[i].limited {
			last = later(last, newest.Recorded)
		} else {
			last = later(last, newest.lastTime())
		}
	}
	return last
}

// maxAheadOfClock is how far ahead of the clock of this process a last time may be. Others take its place within that
// time anyway.
const maxAheadOfClock = time.Hour

// lastAfter returns the time of the last occurrence after a write of a batch. It only rises, unless it has been in the
// future: otherwise one reporter with a wrong clock would keep the times of all others from the Event.
func (o *observation) lastAfter(batch []Entry) time.Time {
	now := batch[len(batch)-1].Newest.Recorded
	if last := lastSeen(batch); last.After(o.last) || o.last.After(now.Add(maxAheadOfClock)) {
		return last
	}
	return o.last
}
