package intake

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/endpoints/handlers/negotiation"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
	"sigs.k8s.io/json"

	"github.com/eventd/eventd/pkg/occurrence"
)

// handlerTimeout is that of a write in the apiserver's handlers.
const handlerTimeout = 34 * time.Second

// maxPlainBody limits what is decoded twice if it turns out not to be plain. An Event has about 1 KiB.
const maxPlainBody = 16 << 10

// errNotPlain is the error of a report that turns out to need the handlers of the apiserver.
var errNotPlain = errors.New("the report is not plain")

// plain handles the reports of recorders: a POST of an Event, and the strategic merge PATCH that raises one. It answers
// as the handlers of the apiserver, which take most of the time of a report, for what recorders do not use: managed
// fields, options, warnings, tables and any patch. What is not plain it leaves to them, before it has changed anything.
type plain struct {
	storage  *storage
	scope    *handlers.RequestScope
	decoders map[string]runtime.Decoder // by content type
}

func newPlain(s *storage, scope *handlers.RequestScope) *plain {
	p := &plain{storage: s, scope: scope, decoders: make(map[string]runtime.Decoder)}
	for _, info := range codecs.SupportedMediaTypes() {
		if info.StrictSerializer != nil && info.MediaType != runtime.ContentTypeYAML {
			p.decoders[info.MediaType] = scope.Serializer.DecoderToVersion(info.StrictSerializer, scope.HubGroupVersion)
		}
	}
	return p
}

// or returns a handler that calls report for a request without options, and another handler for all others.
func (p *plain) or(report func(context.Context, *http.Request, *request.RequestInfo) (*corev1.Event, int, error), other http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		info, ok := request.RequestInfoFrom(req.Context())
		if !ok || hasOptions(req.URL) || len(bodyOf(req).all) > maxPlainBody || strings.Contains(req.Header.Get("Accept"), ";") {
			other(w, req)
			return
		}
		// What cannot be answered is not recorded.
		if _, _, err := negotiation.NegotiateOutputMediaType(req, p.scope.Serializer, negotiation.DefaultEndpointRestrictions); err != nil {
			other(w, req)
			return
		}
		ctx, cancel := earlyWithin(req.Context(), handlerTimeout)
		defer cancel()
		event, code, err := report(ctx, req, info)
		switch {
		case errors.Is(err, errNotPlain):
			other(w, req)
		case err != nil:
			responsewriters.ErrorNegotiated(err, codecs, p.scope.Kind.GroupVersion(), w, req)
		default:
			answer := *event // that of a view is shared, and an encoder sets its kind
			responsewriters.WriteObjectNegotiated(p.scope.Serializer, negotiation.DefaultEndpointRestrictions, p.scope.Kind.GroupVersion(), w, req, code, &answer, false)
		}
	}
}

// hasOptions reports whether the query of a URL has more than a timeout.
func hasOptions(u *url.URL) bool {
	if u.RawQuery == "" {
		return false
	}
	values := u.Query()
	return len(values) != 1 || !values.Has("timeout")
}

// create is what handlers.CreateResource does.
func (p *plain) create(ctx context.Context, req *http.Request, info *request.RequestInfo) (*corev1.Event, int, error) {
	event := p.decode(req)
	if event == nil {
		return nil, 0, errNotPlain
	}
	rest.WipeObjectMetaSystemFields(event)
	if err := rest.EnsureObjectNamespaceMatchesRequestNamespace(info.Namespace, event); err != nil {
		return nil, 0, err
	}
	created, err := p.storage.createEvent(ctx, info.Namespace, event, &metav1.CreateOptions{})
	return created, http.StatusCreated, err
}

// decode returns nil for a body that is not plain: also if it has an error or a warning.
func (p *plain) decode(req *http.Request) *corev1.Event {
	decoder := p.decoders[mediaTypeOf(req)]
	if decoder == nil {
		return nil
	}
	obj, kind, err := decoder.Decode(bodyOf(req).all, &p.scope.Kind, &corev1.Event{})
	event, ok := obj.(*corev1.Event)
	if err != nil || !ok || *kind != p.scope.Kind || !isBareMeta(&event.ObjectMeta) {
		return nil
	}
	return event
}

// patch is what handlers.PatchResource does.
func (p *plain) patch(ctx context.Context, req *http.Request, info *request.RequestInfo) (*corev1.Event, int, error) {
	body, r := bodyOf(req).all, raise{notFound: apierrors.NewNotFound(p.storage.resource, info.Name)}
	if req.Header.Get("Content-Type") != string(types.StrategicMergePatchType) || !r.decode(body, p.storage.api) {
		return nil, 0, errNotPlain
	}
	changed, created, err := p.storage.updateEvent(ctx, key{info.Namespace, info.Name}, &r, &metav1.UpdateOptions{})
	code := http.StatusOK
	if created {
		code = http.StatusCreated
	}
	return changed, code, err
}

// raise is the patch of a repeated Event: client-go's tools/record sets count, lastTimestamp and message of a core/v1
// Event, and its tools/events the series of an events.k8s.io/v1 Event.
type raise struct {
	Count         *int32       `json:"count"`
	LastTimestamp *metav1.Time `json:"lastTimestamp"`
	Message       *string      `json:"message"`
	Series        *struct {
		Count            *int32            `json:"count"`
		LastObservedTime *metav1.MicroTime `json:"lastObservedTime"`
	} `json:"series"`

	notFound error
}

var _ rest.UpdatedObjectInfo = &raise{}

// decode returns false for another patch: with other fields, one of them twice, or null, which would unset it.
func (r *raise) decode(body []byte, api occurrence.API) bool {
	if bytes.Contains(body, []byte("null")) {
		return false
	}
	if strict, err := json.UnmarshalStrict(body, r); err != nil || len(strict) > 0 {
		return false
	}
	classic := r.Count != nil || r.LastTimestamp != nil || r.Message != nil
	series := r.Series != nil && (r.Series.Count != nil || r.Series.LastObservedTime != nil)
	return series == (r.Series != nil) && (series || classic) && (api == occurrence.CoreV1 || !classic)
}

// Preconditions implements rest.UpdatedObjectInfo.
func (r *raise) Preconditions() *metav1.Preconditions { return nil }

// UpdatedObject implements rest.UpdatedObjectInfo. It returns another Event than the old one.
func (r *raise) UpdatedObject(_ context.Context, old runtime.Object) (runtime.Object, error) {
	existing := old.(*corev1.Event)
	if existing.UID == "" { // there is none
		return nil, r.notFound
	}
	if !isBareMeta(&existing.ObjectMeta) {
		return nil, errNotPlain
	}
	event := existing.DeepCopy()
	setTo(&event.Count, r.Count)
	setTo(&event.LastTimestamp, r.LastTimestamp)
	setTo(&event.Message, r.Message)
	if r.Series != nil {
		if event.Series == nil {
			event.Series = &corev1.EventSeries{}
		}
		setTo(&event.Series.Count, r.Series.Count)
		setTo(&event.Series.LastObservedTime, r.Series.LastObservedTime)
	}
	if !roundTimes(event) {
		return nil, errNotPlain
	}
	return event, nil
}

func setTo[T any](field, value *T) {
	if value != nil {
		*field = *value
	}
}

// roundTimes has the times of an Event as they are after the apiserver's handler has applied a patch to its
// JSON: in seconds or microseconds. It returns false for a time that JSON does not have.
func roundTimes(event *corev1.Event) bool {
	ok := round(&event.CreationTimestamp.Time, time.Second) && round(&event.FirstTimestamp.Time, time.Second) &&
		round(&event.LastTimestamp.Time, time.Second) && round(&event.EventTime.Time, time.Microsecond)
	return ok && (event.Series == nil || round(&event.Series.LastObservedTime.Time, time.Microsecond))
}

func round(t *time.Time, to time.Duration) bool {
	if t.IsZero() {
		*t = time.Time{}
		return true
	}
	*t = t.Truncate(to)
	year := t.UTC().Year()
	return 0 <= year && year <= 9999
}
