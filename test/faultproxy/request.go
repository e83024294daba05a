package faultproxy

import (
	"encoding/json"
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/kubernetes/scheme"
)

// Verb is the verb of a write, as in RBAC.
type Verb string

// The verbs of writes.
const (
	Create Verb = "create" // POST
	Update Verb = "update" // PUT
	Patch  Verb = "patch"  // PATCH
)

// API is one of the two views of Events, by its apiVersion.
type API string

// The APIs that serve Events.
const (
	CoreV1   API = "v1"
	EventsV1 API = "events.k8s.io/v1"
)

// Request is one Event write as the proxy sees it.
type Request struct {
	Verb      Verb
	API       API
	Namespace string
	// Name is the Event's. Of a create it is read from the body: a prefix and a
	// "*" if the apiserver is to complete it, and "" if the body is no Event.
	Name string
	// Empty: a patch with the body {}, which reads the object and writes nothing.
	Empty bool
	// Number counts the requests with the same key, from 1. It is 0 for a request
	// above the capacity.
	Number uint64
}

var verbs = map[string]Verb{http.MethodPost: Create, http.MethodPut: Update, http.MethodPatch: Patch}

// writeTarget parses method and path of a request, and reports whether it is an Event
// write.
func writeTarget(r *http.Request) (Request, bool) {
	request := Request{Verb: verbs[r.Method]}
	rest, isCore := strings.CutPrefix(r.URL.Path, "/api/v1/namespaces/")
	if isCore {
		request.API = CoreV1
	} else {
		var isEvents bool
		if rest, isEvents = strings.CutPrefix(r.URL.Path, "/apis/events.k8s.io/v1/namespaces/"); !isEvents {
			return Request{}, false
		}
		request.API = EventsV1
	}
	parts := strings.Split(rest, "/")
	if len(parts) < 2 || parts[1] != "events" {
		return Request{}, false
	}
	request.Namespace = parts[0]
	switch {
	case request.Verb == Create && len(parts) == 2:
		return request, true
	case (request.Verb == Update || request.Verb == Patch) && len(parts) == 3:
		request.Name = parts[2]
		return request, true
	default:
		return Request{}, false
	}
}

// read adds what is in the body.
func (r *Request) read(body []byte) {
	switch r.Verb {
	case Create:
		r.Name = nameIn(body)
	case Patch:
		r.Empty = isEmptyObject(body)
	}
}

// nameIn returns the name of the object in body, which is JSON or protobuf.
func nameIn(body []byte) string {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
	if err != nil {
		return ""
	}
	accessor, err := meta.Accessor(object)
	switch {
	case err != nil:
		return ""
	case accessor.GetName() == "" && accessor.GetGenerateName() != "":
		return accessor.GetGenerateName() + "*"
	default:
		return accessor.GetName()
	}
}

func isEmptyObject(body []byte) bool {
	var fields map[string]json.RawMessage
	return json.Unmarshal(body, &fields) == nil && fields != nil && len(fields) == 0
}
