package intake

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// handlerTimeout is that of a write in the apiserver's handlers.
const handlerTimeout = 34 * time.Second

// errUnusual is the error of a usual request that turns out to need the generic handler.
var errUnusual = errors.New("the request is not usual")

// usualOr returns the handler of usual requests on the fast path, with the generic one for all others. report does
// what the generic one does before and within its call of the storage. It returns errUnusual before it has changed
// anything.
func (s *storage) usualOr(generic http.HandlerFunc, report func(context.Context, *usual, []byte) (*corev1.Event, int, error)) http.HandlerFunc {
	unusual := withGenericContext(generic)
	return func(w http.ResponseWriter, req *http.Request) {
		u := callOf(req.Context()).usual
		if u == nil {
			generic(w, req)
			return
		}
		event, code, err := u.handle(req, report)
		switch {
		case errors.Is(err, errUnusual):
			u.call.early = false // the handlers set a deadline of their own
			unusual(w, req)
		case err != nil:
			responsewriters.ErrorNegotiated(err, codecs, s.api.GroupVersion(), w, req)
		default:
			u.respond(w, req, code, event)
		}
	}
}

// handle calls report with the deadline of the apiserver's handlers. A request may be handled again, in another term.
func (u *usual) handle(req *http.Request, report func(context.Context, *usual, []byte) (*corev1.Event, int, error)) (*corev1.Event, int, error) {
	handling, at := new(deadline), soon(handlerTimeout)
	if u.deadline.at.Before(at) {
		at = u.deadline.at
	}
	handling.begin(req.Context(), u.deadline.ends, at)
	defer handling.end()
	return report(handling, u, bodyOf(req).all)
}

// createUsual is what handlers.CreateResource does, for a usual POST.
func (s *storage) createUsual(ctx context.Context, u *usual, body []byte) (*corev1.Event, int, error) {
	event := u.decode(body)
	if event == nil {
		return nil, 0, errUnusual
	}
	rest.WipeObjectMetaSystemFields(event)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(u.info.Namespace, event); err != nil {
		return nil, 0, err
	}
	created, err := s.createEvent(ctx, u.info.Namespace, event, &metav1.CreateOptions{})
	return created, http.StatusCreated, err
}

// decode returns the Event in a body, nil if it is not usual: if the apiserver would answer it with an error or a
// warning, or if its metadata has more than the fast path takes (jsonReader.metadata, isUsualMeta).
func (u *usual) decode(body []byte) *corev1.Event {
	if !u.protobuf {
		return decodeUsualJSON(body, u.api, u.info.Namespace)
	}
	event := decodeUsualProtobuf(body, u.api)
	if event == nil || !isUsualMeta(&event.ObjectMeta) || checkEvent(event) != nil {
		return nil
	}
	return event
}

// isUsualMeta reports whether metadata has nothing that the generic handlers change, or warn about.
func isUsualMeta(meta *metav1.ObjectMeta) bool {
	return len(meta.OwnerReferences)+len(meta.Finalizers)+len(meta.ManagedFields) == 0
}

// decodeUsualProtobuf is the decoder of the apiserver without the steps that choose a type.
func decodeUsualProtobuf(body []byte, api occurrence.API) *corev1.Event {
	raw, ok := bytes.CutPrefix(body, protobufPrefix)
	if !ok || len(raw) == 0 {
		return nil
	}
	var unknown runtime.Unknown
	if unknown.Unmarshal(raw) != nil || unknown.Kind != "Event" {
		return nil
	}
	switch event := (&corev1.Event{}); {
	case api == occurrence.CoreV1 && unknown.APIVersion == "v1":
		if event.Unmarshal(unknown.Raw) == nil {
			return event
		}
	case api == occurrence.EventsV1 && unknown.APIVersion == "events.k8s.io/v1":
		newStyle := &eventsv1.Event{}
		if newStyle.Unmarshal(unknown.Raw) == nil {
			return identity.ToCoreV1(newStyle)
		}
	}
	return nil
}

// patchUsual is what handlers.PatchResource does, for a usual PATCH.
func (s *storage) patchUsual(ctx context.Context, u *usual, body []byte) (*corev1.Event, int, error) {
	patch := decodeUsualPatch(body, u.api)
	if patch == nil {
		return nil, 0, errUnusual
	}
	patch.storage, patch.name = s, u.info.Name
	changed, created, err := s.updateEvent(ctx, key{u.info.Namespace, u.info.Name}, patch, &metav1.UpdateOptions{})
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return changed, code, err
}
