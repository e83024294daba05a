package intake

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/eventd/eventd/pkg/occurrence"
)

// router finds the handler of a request by its RequestInfo, which was authorized, and
// not by its URL.
type router struct {
	apis    map[occurrence.API]api
	paths   map[string]http.Handler // read only
	queries *queries                // nil without them
}

func (r *router) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	info, ok := request.RequestInfoFrom(req.Context())
	switch {
	case !ok:
		refuse(w, req, apierrors.NewInternalError(fmt.Errorf("no RequestInfo in the context")))
	case r.queries.resource(req) != "":
		r.queries.ServeHTTP(w, req)
	case info.IsResourceRequest:
		r.serveResource(w, req, info)
	default:
		r.servePath(w, req, info)
	}
}

func (r *router) serveResource(w http.ResponseWriter, req *http.Request, info *request.RequestInfo) {
	which, ok := apiOf(info)
	served := r.apis[which]
	if !ok || served == nil || len(info.Parts) > 2 {
		notServed(w, req, http.StatusNotFound, "404: Page Not Found")
		return
	}
	var allowed []string
	switch {
	case info.Namespace == "":
		// Without a namespace the apiserver only lists.
	case len(info.Parts) == 1:
		if info.Verb == "create" {
			verb := info.Verb
			if isBatch(req) {
				verb = batchVerb
			}
			served[verb].ServeHTTP(w, req)
			return
		}
		allowed = []string{http.MethodPost}
	default:
		if info.Verb == "update" || info.Verb == "patch" {
			served[info.Verb].ServeHTTP(w, req)
			return
		}
		allowed = []string{http.MethodPatch, http.MethodPut}
	}
	notAllowed(w, req, allowed)
}

func (r *router) servePath(w http.ResponseWriter, req *http.Request, info *request.RequestInfo) {
	handler, ok := r.paths[strings.TrimSuffix(info.Path, "/")]
	switch {
	case !ok:
		notServed(w, req, http.StatusNotFound, "404: Page Not Found")
	case req.Method != http.MethodGet && req.Method != http.MethodHead:
		notAllowed(w, req, []string{http.MethodGet})
	default:
		handler.ServeHTTP(w, req)
	}
}

// recording reports whether a request would be recorded.
func recording(req *http.Request) bool {
	info, ok := request.RequestInfoFrom(req.Context())
	if !ok {
		return false
	}
	if _, ok := apiOf(info); !ok || info.Namespace == "" {
		return false
	}
	switch info.Verb {
	case "create":
		return len(info.Parts) == 1
	case "update", "patch":
		return len(info.Parts) == 2
	default:
		return false
	}
}

// apiOf returns the API of a request about Events.
func apiOf(info *request.RequestInfo) (occurrence.API, bool) {
	if !info.IsResourceRequest || info.Resource != resourceName {
		return 0, false
	}
	gv := schema.GroupVersion{Group: info.APIGroup, Version: info.APIVersion}
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		if gv == api.GroupVersion() {
			return api, true
		}
	}
	return 0, false
}

func notAllowed(w http.ResponseWriter, req *http.Request, methods []string) {
	w.Header().Set("Allow", strings.Join(methods, ", "))
	notServed(w, req, http.StatusMethodNotAllowed, "405: Method Not Allowed")
}

// notServed responds as the apiserver does to a path without a handler.
func notServed(w http.ResponseWriter, req *http.Request, code int, message string) {
	refuse(w, req, apierrors.NewGenericServerResponse(code, "", schema.GroupResource{}, "", message, 0, false))
}

// refuse responds with a Status to a request that reaches no handler. An error without one is why a context has ended,
// which the apiserver's code would log as unhandled.
func refuse(w http.ResponseWriter, req *http.Request, err error) {
	if apierrors.ReasonForError(err) == metav1.StatusReasonUnknown && (errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)) {
		err = timeoutError(err)
	}
	responsewriters.ErrorNegotiated(err, codecs, schema.GroupVersion{}, w, req)
}
