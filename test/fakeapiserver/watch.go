package fakeapiserver

import (
	"encoding/json"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
)

// serveWatch streams the changes of a namespace, of all if it is "", until the client leaves. With a field
// selector, only metadata.name is supported.
func (s *Server) serveWatch(w http.ResponseWriter, req *http.Request, of *store, namespace string, shown func(object) runtime.Object) {
	query := req.URL.Query()
	if query.Has("sendInitialEvents") { // the client lists instead
		http.Error(w, "streaming lists are not supported", http.StatusBadRequest)
		return
	}
	name, err := selectedName(query.Get("fieldSelector"))
	if err != nil {
		fail(w, req, err)
		return
	}
	past, next, stop, err := of.watch(query.Get("resourceVersion"))
	if err != nil {
		fail(w, req, err)
		return
	}
	defer stop()
	send := sender(w, req)
	out := http.NewResponseController(w)
	write := func(c change) bool {
		if namespace != "" && c.object.GetNamespace() != namespace || name != "" && c.object.GetName() != name {
			return true
		}
		return send(c.kind, shown(c.object)) == nil
	}
	w.WriteHeader(http.StatusOK)
	for _, c := range past {
		if !write(c) {
			return
		}
	}
	for out.Flush() == nil {
		select {
		case c, ok := <-next:
			if !ok || !write(c) {
				return
			}
		case <-req.Context().Done():
			return
		case <-s.closing:
			return
		}
	}
}

// sender returns what writes a frame of a watch, as the client accepts it.
func sender(w http.ResponseWriter, req *http.Request) func(watch.EventType, runtime.Object) error {
	if acceptsProtobuf(req) {
		w.Header().Set("Content-Type", runtime.ContentTypeProtobuf+";stream=watch")
		frames := protobuf.LengthDelimitedFramer.NewFrameWriter(w)
		events := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
		return func(kind watch.EventType, o runtime.Object) error {
			raw, err := runtime.Encode(protobufSerializer, o)
			if err != nil {
				return err
			}
			return events.Encode(&metav1.WatchEvent{Type: string(kind), Object: runtime.RawExtension{Raw: raw}}, frames)
		}
	}
	w.Header().Set("Content-Type", runtime.ContentTypeJSON)
	frames := json.NewEncoder(w)
	return func(kind watch.EventType, o runtime.Object) error {
		return frames.Encode(map[string]any{"type": kind, "object": o})
	}
}

// listConfigMaps serves the one ConfigMap that there is, which never changes.
func (s *Server) listConfigMaps(w http.ResponseWriter, req *http.Request) {
	if req.URL.Query().Has("watch") {
		s.serveWatch(w, req, s.configMaps, req.PathValue("namespace"), func(o object) runtime.Object { return o })
		return
	}
	objects, version := s.configMaps.list(req.PathValue("namespace"))
	out := &corev1.ConfigMapList{
		TypeMeta: metav1.TypeMeta{Kind: "ConfigMapList", APIVersion: "v1"}, ListMeta: metav1.ListMeta{ResourceVersion: version},
	}
	for _, o := range objects {
		out.Items = append(out.Items, *o.(*corev1.ConfigMap))
	}
	respond(w, req, http.StatusOK, out)
}
