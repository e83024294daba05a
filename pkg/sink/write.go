package sink

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

const verbNone apiclient.Verb = ""

// drawn is why a name was drawn at random. Its values are metric labels.
type drawn string

const (
	notDrawn drawn = ""
	// occupied: foreign objects have all names that can be derived.
	occupied drawn = "occupied"
	// unmarked: admission removes our annotations, so nobody can tell whose an
	// object is under a name that can be derived.
	unmarked drawn = "annotations_removed"
	// forbidden: what is stored cannot be changed.
	forbidden drawn = "forbidden"
)

var emptyPatch = []byte("{}")

// request is what is to be asked of the apiserver next.
type request struct {
	verb            apiclient.Verb
	api             occurrence.API
	namespace, name string
	event           *corev1.Event // to create
	patch           []byte        // to patch or read
	plan            plan
	// drawn is why the name was drawn at random for this request, "" if it was not.
	drawn drawn
	// sequence is the last one of the sink when it was made.
	sequence uint64
}

// next returns the request that brings the stored Event closer to what is
// pending; what needs no request for that is returned as settled. There is
// nothing to ask if the request is nil.
//
// What may be done there is asked for by the API.
func (a *account) next(may func(occurrence.API) means) (*request, []settled) {
	if len(a.pending) == 0 {
		return nil, nil
	}
	a.identify()
	batch := a.batch()
	m := may(a.api())
	if m.change == verbNone && !a.creates() {
		if out := a.part(); len(out) > 0 {
			return nil, out
		}
	}
	r := &request{api: a.api(), namespace: a.namespace, drawn: a.drawName(m)}
	r.name = a.name()
	if a.mustRead {
		r.verb, r.patch = m.read(), emptyPatch
		return r, nil
	}
	r.plan = a.plan()
	if r.plan.isTooMany() {
		// A write in doubt has had room, and is repeated as it was; so there is none,
		// unless the count has changed and the resourceVersion has not.
		if out := a.leave(); len(out) > 0 {
			return nil, out
		}
		return a.next(may)
	}
	if replays := a.settleReplays(r.plan); replays != nil {
		return nil, replays
	}
	if r.plan.base == nil && r.plan.added == 0 {
		// There is nothing to create an Event for, only one to change.
		if m.change == verbNone {
			return nil, a.giveUp(a.last(), occurrence.Forbidden, nil)
		}
		r.verb, r.patch = m.read(), emptyPatch
		return r, nil
	}
	if r.plan.base == nil {
		r.verb, r.event = apiclient.VerbCreate, a.eventToCreate(r.name, r.plan)
		// Its content is the oldest one's, and so are the rules for it.
		r.api = apiFor(batch[0].oldest.api, r.event)
	} else {
		r.verb, r.patch = m.change, a.patchFor(r.plan)
	}
	a.begin(r.plan)
	return r, nil
}

// creates tells whether the next request is to create the Event, as far as is
// known.
func (a *account) creates() bool { return a.observed == nil && !a.mustRead }

// api is the one to write what is pending through.
func (a *account) api() occurrence.API {
	newest := &a.pending[len(a.pending)-1].newest
	return apiFor(newest.api, newest.event)
}

// apiFor is the API to write an Event through that was reported through
// another. Only core/v1 lets the count of a classic Event change.
func apiFor(reported occurrence.API, event *corev1.Event) occurrence.API {
	if event.EventTime.IsZero() {
		return occurrence.CoreV1
	}
	return reported
}

func (a *account) eventToCreate(name string, p plan) *corev1.Event {
	batch := a.batch()
	oldest := &batch[0].oldest
	event := oldest.event.DeepCopy()
	event.ObjectMeta = metav1.ObjectMeta{
		Name:            name,
		Namespace:       event.Namespace,
		Labels:          a.labels(),
		Annotations:     a.annotations(p),
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
		event.FirstTimestamp = metav1.NewTime(oldest.recorded)
	}
	event.LastTimestamp = metav1.NewTime(lastSeen(batch, lastTimestamp))
	if newest := newestChange(batch); newest != nil {
		event.Message = newest.event.Message
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

func (a *account) patchFor(p plan) []byte {
	batch := a.batch()
	patch := eventPatch{Metadata: patchMetadata{
		ResourceVersion: p.base.resourceVersion(),
		Labels:          a.labels(),
		Annotations:     a.annotations(p),
	}}
	if batch[0].newest.event.EventTime.IsZero() {
		patch.Count = int32(p.count)
		if last := metav1.NewTime(lastSeen(batch, lastTimestamp)); last.After(p.base.last.Time) {
			patch.LastTimestamp = &last
		}
		if newest := newestChange(batch); newest != nil && hashOf(newest.event.Message) != p.base.message {
			patch.Message = newest.event.Message
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
func (a *account) undress() bool {
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
func (a *account) labels() map[string]string {
	if a.bare {
		return nil
	}
	var out map[string]string
	batch := a.batch()
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
func (a *account) annotations(p plan) map[string]string {
	out := make(map[string]string, 2)
	batch := a.batch()
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
	out[sharesAnnotation] = p.shares.String()
	return out
}

// isDirective tells whether a strategic merge patch would read a key as what to do
// with the others. No label or annotation may have it.
func isDirective(key string) bool { return strings.HasPrefix(key, "$") }

// lastTimestamp is when an occurrence happened, as far as it is known.
func lastTimestamp(c *content) time.Time {
	if t := c.event.LastTimestamp; !t.IsZero() {
		return t.Time
	}
	return c.recorded
}

// lastObserved is the same for new-style Events.
func lastObserved(c *content) time.Time {
	if s := c.event.Series; s != nil && !s.LastObservedTime.IsZero() {
		return s.LastObservedTime.Time
	}
	return c.event.EventTime.Time
}

// newestChange is the newest content of a batch whose reporter may change the Event,
// nil if there is none.
func newestChange(batch []entry) *content {
	for i := range slices.Backward(batch) {
		if !batch[i].limited {
			return &batch[i].newest
		}
	}
	return nil
}

// lastSeen is when the newest of a batch happened: as its reporter says, or by our
// clock if the reporter may not change the Event.
func lastSeen(batch []entry, said func(*content) time.Time) time.Time {
	newest := &batch[len(batch)-1]
	if !newest.limited {
		return said(&newest.newest)
	}
	last := newest.newest.recorded
	if c := newestChange(batch); c != nil && said(c).After(last) {
		last = said(c)
	}
	return last
}
