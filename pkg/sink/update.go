package sink

import (
	"context"
	"encoding/json"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Updater is a Client that can also read an Event as JSON and write it back. A sink
// uses it in place of patches where those are forbidden. A Client that does not
// implement it is asked to create and to patch only.
type Updater interface {
	Client
	// Get returns the JSON of an Event as the apiserver has it.
	Get(ctx context.Context, api occurrence.API, namespace, name string) (event []byte, err error)
	// Update replaces an Event by the JSON of one, which has the UID and the
	// resourceVersion of what it replaces.
	Update(ctx context.Context, api occurrence.API, namespace, name string, event []byte) (*corev1.Event, error)
}

// get reads an Event, and its JSON with all that this release does not know.
func (s *Sink) get(ctx context.Context, r *request) (a answer, event []byte) {
	start := time.Now()
	event, err := s.client.(Updater).Get(ctx, r.api, r.namespace, r.name)
	var object *corev1.Event
	if err == nil {
		object, err = decode(r.api, event)
	}
	return s.timed(ctx, r, classify(verbGet, object, err), start), event
}

// update replaces an Event by what it is with the patch applied. The UID is in
// it: without it, an Event that has expired meanwhile would be created again, with
// its old count.
func (s *Sink) update(ctx context.Context, r *request) answer {
	a, event := s.get(ctx, r)
	if a.class != classOK || a.object.ResourceVersion != r.plan.base.resourceVersion() {
		return a // what was read decides on what is to be written
	}
	s.answered(r, a)
	start := time.Now()
	event, err := jsonpatch.MergePatch(event, r.patch)
	if err == nil {
		err = s.schedule.rateLimiter.Wait(ctx)
	}
	if err != nil {
		return answer{verb: verbUpdate, class: classNotTaken, err: err, began: start, unsent: true}
	}
	object, err := s.client.(Updater).Update(ctx, r.api, r.namespace, r.name, event)
	return s.timed(ctx, r, classify(verbUpdate, object, err), start)
}

// decode reads the JSON of an Event as an API has it.
func decode(api occurrence.API, event []byte) (*corev1.Event, error) {
	if api == occurrence.EventsV1 {
		var out eventsv1.Event
		err := json.Unmarshal(event, &out)
		return identity.ToCoreV1(&out), err
	}
	var out corev1.Event
	err := json.Unmarshal(event, &out)
	return &out, err
}
