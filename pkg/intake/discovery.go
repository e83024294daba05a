package intake

import (
	"encoding/json"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/handlers/responsewriters"
	"k8s.io/component-base/version"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/eventd/eventd/pkg/occurrence"
)

// newDiscovery returns the handlers of the discovery documents by path: those of the Events API if it is served, and
// of queries, which may be nil. Aggregated discovery is not served: clients that request it accept plain documents too.
func newDiscovery(events bool, queries Queries) map[string]http.Handler {
	addresses := discovery.DefaultAddresses{}
	groups := discovery.NewRootAPIsHandler(addresses, codecs)
	paths := pathHandlers{
		"/apis": groups,
		"/version": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			responsewriters.WriteRawJSON(http.StatusOK, version.Get(), w)
		}),
	}
	paths.addOpenAPI(events)
	addGroup := func(gv schema.GroupVersion, resources http.Handler) {
		served := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: gv.Version}
		group := metav1.APIGroup{Name: gv.Group, Versions: []metav1.GroupVersionForDiscovery{served}, PreferredVersion: served}
		groups.AddGroup(group)
		paths["/apis/"+gv.Group] = discovery.NewAPIGroupHandler(codecs, group)
		paths["/apis/"+gv.String()] = resources
	}
	if events {
		paths["/api"] = discovery.NewLegacyRootAPIHandler(addresses, codecs, "/api")
		paths["/api/v1"] = resources(occurrence.CoreV1)
		addGroup(occurrence.EventsV1.GroupVersion(), resources(occurrence.EventsV1))
	}
	if queries != nil {
		gv := queries.GroupVersion()
		addGroup(gv, discovery.NewAPIVersionHandler(codecs, gv, discovery.APIResourceListerFunc(queries.Resources)))
	}
	return paths
}

// openAPI is a document of version 2, without schemas. It says that the fields of Events are validated: kubectl asks
// before it sends one, and sends none without an answer. Without a document, a kube-apiserver in front of the queries
// logs an error now and then, for as long as it runs. It makes that of version 3 of this one: with one of eventd's, it
// would take eventd's core/v1 for its own.
const openAPI = `{
	"swagger": "2.0",
	"info": {"title": "eventd", "version": "unversioned"},
	"paths": {
		"/api/v1/namespaces/{namespace}/events/{name}": {"patch": {
			"parameters": [{"name": "fieldValidation", "in": "query", "type": "string"}],
			"responses": {"200": {"description": "OK"}},
			"x-kubernetes-group-version-kind": {"group": "", "version": "v1", "kind": "Event"}
		}},
		"/apis/events.k8s.io/v1/namespaces/{namespace}/events/{name}": {"patch": {
			"parameters": [{"name": "fieldValidation", "in": "query", "type": "string"}],
			"responses": {"200": {"description": "OK"}},
			"x-kubernetes-group-version-kind": {"group": "events.k8s.io", "version": "v1", "kind": "Event"}
		}}
	}
}`

// pathHandlers are handlers by path.
type pathHandlers map[string]http.Handler

// Handle implements common.PathHandler of kube-openapi.
func (p pathHandlers) Handle(path string, handler http.Handler) { p[path] = handler }

// addOpenAPI adds the handler of the document, which is served in JSON and protobuf.
func (p pathHandlers) addOpenAPI(events bool) {
	document := &spec.Swagger{}
	if err := json.Unmarshal([]byte(openAPI), document); err != nil {
		panic(err)
	}
	if !events {
		document.Paths = &spec.Paths{}
	}
	handler.NewOpenAPIService(document).RegisterOpenAPIVersionedService("/openapi/v2", p)
}

func resources(api occurrence.API) http.Handler {
	return discovery.NewAPIVersionHandler(codecs, api.GroupVersion(), discovery.APIResourceListerFunc(func() []metav1.APIResource {
		return []metav1.APIResource{{
			Name:         resourceName,
			SingularName: "event",
			Namespaced:   true,
			Kind:         "Event",
			Verbs:        metav1.Verbs{"create", "patch", "update"},
			ShortNames:   []string{"ev"},
		}}
	}))
}
