package intake

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/endpoints/handlers"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/eventd/eventd/pkg/occurrence"
)

// resourceName is the name of the resource in the paths of both APIs.
const resourceName = "events"

// patchTypes are all types of patches except server-side apply.
var patchTypes = []string{
	string(types.JSONPatchType),
	string(types.MergePatchType),
	string(types.StrategicMergePatchType),
}

// api has the handlers of one API by the authorized verb.
type api map[string]http.HandlerFunc

func newScope(i *Intake, a occurrence.API) (*handlers.RequestScope, error) {
	gv := a.GroupVersion()
	kind := gv.WithKind("Event")
	resource := gv.WithResource(resourceName)
	manager, err := newFieldManager(kind, hub(a))
	if err != nil {
		return nil, err
	}
	return &handlers.RequestScope{
		Namer:                    handlers.ContextBasedNaming{Namer: meta.NewAccessor()},
		Serializer:               checkedSerializer{codecs},
		ParameterCodec:           runtime.NewParameterCodec(scheme),
		Creater:                  scheme,
		Convertor:                scheme,
		Defaulter:                scheme,
		Typer:                    scheme,
		UnsafeConvertor:          runtime.UnsafeObjectConvertor(scheme),
		EquivalentResourceMapper: runtime.NewEquivalentResourceRegistry(),
		TableConvertor:           rest.NewDefaultTableConvertor(resource.GroupResource()),
		FieldManager:             manager,
		Resource:                 resource,
		Kind:                     kind,
		HubGroupVersion:          hub(a),
		MetaGroupVersion:         metav1.SchemeGroupVersion,
		MaxRequestBodyBytes:      i.options.MaxBodyBytes,
	}, nil
}

// newAPI returns the handlers with an intake's storage.
func newAPI(i *Intake, a occurrence.API, authz Authorizer) (api, error) {
	scope, err := newScope(i, a)
	if err != nil {
		return nil, err
	}
	s := newStorage(i, a, authz)
	// Each request has its own handler, as in the apiserver, because a handler changes
	// its arguments.
	local := api{
		"create": func(w http.ResponseWriter, req *http.Request) {
			handlers.CreateResource(s, scope, nil)(w, req)
		},
		"update": func(w http.ResponseWriter, req *http.Request) {
			handlers.UpdateResource(s, scope, nil)(w, req)
		},
		"patch": func(w http.ResponseWriter, req *http.Request) {
			handlers.PatchResource(s, scope, nil, patchTypes)(w, req)
		},
	}
	plain := newPlain(s, scope)
	local["create"] = plain.or(plain.create, local["create"])
	local["patch"] = plain.or(plain.patch, local["patch"])
	return local.each(withReservation), nil
}

func newStorage(i *Intake, a occurrence.API, authz Authorizer) *storage {
	return &storage{
		intake:     i,
		api:        a,
		resource:   schema.GroupResource{Group: a.GroupVersion().Group, Resource: resourceName},
		strategy:   strategy{ObjectTyper: scheme, api: a},
		mayCreate:  mayCreate(authz),
		createOnly: createOnly(authz),
	}
}

// each wraps all handlers.
func (a api) each(wrap func(http.HandlerFunc) http.HandlerFunc) api {
	wrapped := make(api, len(a))
	for verb, handler := range a {
		wrapped[verb] = wrap(handler)
	}
	return wrapped
}

// withBody reads the body of a request first. So a request that waits for its body has
// no seat, and a leader does not record it after its term.
func (i *Intake) withBody(next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, req *http.Request) {
		begun := time.Now()
		body, err := readBody(req, i.options.MaxBodyBytes)
		switch {
		case err != nil && req.Context().Err() != nil: // too late for another answer than that of withTimeoutAnswer
			return
		case err != nil:
			refuse(w, req, err)
			return
		}
		i.working.Add(1)
		defer i.working.Add(-1)
		next(w, withBody(req, body, time.Since(begun)))
	}
}
