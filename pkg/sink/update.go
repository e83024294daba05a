package sink

import (
	"context"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
)

// get reads an Event, and its JSON with the fields that this release does not know.
func (s *Sink) get(ctx context.Context, r *request) (a apiclient.Answer, event []byte) {
	start := time.Now()
	event, err := s.client.(Updater).Get(ctx, r.API, r.Namespace, r.Name)
	var object *corev1.Event
	if err == nil {
		object, err = apiclient.Decode(r.API, event)
	}
	return s.timed(ctx, r, apiclient.Classify(apiclient.VerbGet, object, err), start), event
}

// update replaces an Event by its patched form. That has the UID: without it, an Event that
// has expired meanwhile would be created again, with its old count.
func (s *Sink) update(ctx context.Context, r *request) apiclient.Answer {
	a, event := s.get(ctx, r)
	if a.Class != apiclient.ClassOK || a.Object.ResourceVersion != r.BaseVersion() {
		return a // the Event that was read changes the plan
	}
	s.countAnswer(r, a)
	start := time.Now()
	event, err := jsonpatch.MergePatch(event, r.Patch)
	if err == nil {
		err = s.scheduler.Wait(ctx)
	}
	if err != nil {
		return apiclient.Answer{Verb: apiclient.VerbUpdate, Class: apiclient.ClassRetry, Err: err, Began: start, Unsent: true}
	}
	object, err := s.client.(Updater).Update(ctx, r.API, r.Namespace, r.Name, event)
	return s.timed(ctx, r, apiclient.Classify(apiclient.VerbUpdate, object, err), start)
}
