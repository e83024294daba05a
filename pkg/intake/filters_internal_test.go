package intake

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/pkg/occurrence"
)

// leading is a gate that leads, and takes every token for that of a replica.
type leading struct{ *gate }

func (leading) IsPeer(context.Context, string) (bool, error) { return true, nil }
func (p leading) Begin() Forwarding                          { return p }

// answered is an API of queries that answers nothing, and watches that end at once.
type answered struct{}

func (answered) GroupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "query.eventd.io", Version: "v1"}
}
func (answered) Resources() []metav1.APIResource { return []metav1.APIResource{{Name: "why"}} }
func (answered) Query(q Query) (http.HandlerFunc, bool, error) {
	return func(http.ResponseWriter, *http.Request) {}, q.URL.Query().Has("watch"), nil
}

// There is one list of filters. Every request passes each of them once, in its order, whoever sends it and whatever it
// is, up to the one that answers it.
func TestEveryRequestPassesEveryFilterOnce(t *testing.T) {
	const event = `{"kind":"Event","apiVersion":"v1","metadata":{"name":"a"},"involvedObject":{"namespace":"ns"}}`
	const path, query = "/api/v1/namespaces/ns/events", "/apis/query.eventd.io/v1/why"
	var inProtobuf strings.Builder
	if err := protobuf.NewSerializer(nil, nil).Encode(&corev1.Event{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Event"}, ObjectMeta: metav1.ObjectMeta{Name: "a"}, InvolvedObject: corev1.ObjectReference{Namespace: "ns"},
	}, &inProtobuf); err != nil {
		t.Fatal(err)
	}
	asserted := must(EncodeUser(&user.DefaultInfo{Name: "jane", Extra: map[string][]string{ReplicaExtra: {"b"}}}))
	for name, test := range map[string]struct {
		method, path, contentType, body string
		forwarded, anonymous            bool
		answers                         string // the filter that answers, "" for the handler
		code                            int
	}{
		"POST":                      {http.MethodPost, path, runtime.ContentTypeJSON, event, false, false, "", 201},
		"POST with options":         {http.MethodPost, path + "?dryRun=All", runtime.ContentTypeJSON, event, false, false, "", 201},
		"POST in YAML":              {http.MethodPost, path, runtime.ContentTypeYAML, event, false, false, "", 201},
		"POST in protobuf":          {http.MethodPost, path, runtime.ContentTypeProtobuf, inProtobuf.String(), false, false, "", 201},
		"POST of nonsense":          {http.MethodPost, path, runtime.ContentTypeProtobuf, event, false, false, "", 400},
		"POST, forwarded":           {http.MethodPost, path, runtime.ContentTypeJSON, event, true, false, "", 201},
		"PATCH":                     {http.MethodPatch, path + "/a", string(types.StrategicMergePatchType), `{"count":2}`, false, false, "", 404},
		"PATCH, forwarded":          {http.MethodPatch, path + "/a", string(types.MergePatchType), `{"count":2}`, true, false, "", 404},
		"PUT":                       {http.MethodPut, path + "/a", runtime.ContentTypeJSON, event, false, false, "", 201},
		"PUT, forwarded":            {http.MethodPut, path + "/a", runtime.ContentTypeJSON, event, true, false, "", 201},
		"PATCH in JSON":             {http.MethodPatch, path + "/a", string(types.JSONPatchType), `[]`, false, false, "", 404},
		"PATCH to apply":            {http.MethodPatch, path + "/a?fieldManager=m", string(types.ApplyYAMLPatchType), event, false, false, "", 415},
		"POST of the other API":     {http.MethodPost, "/apis/events.k8s.io/v1/namespaces/ns/events", runtime.ContentTypeJSON, event, false, false, "", 400},
		"DELETE":                    {http.MethodDelete, path + "/a", "", "", false, false, "", 405},
		"a batch":                   {http.MethodPost, path + "?batch=true", runtime.ContentTypeJSON, `{"kind":"EventList","apiVersion":"v1","items":[]}`, false, false, "", 200},
		"a batch, forwarded":        {http.MethodPost, path + "?batch=true", runtime.ContentTypeJSON, `{"kind":"EventList","apiVersion":"v1","items":[]}`, true, false, "", 200},
		"a query":                   {http.MethodGet, query, "", "", false, false, "", 200},
		"a query, forwarded":        {http.MethodGet, query, "", "", true, false, "", 200},
		"a watch":                   {http.MethodGet, query + "?watch=true", "", "", false, false, "", 200},
		"a watch, forwarded":        {http.MethodGet, query + "?watch=true", "", "", true, false, "", 200},
		"discovery":                 {http.MethodGet, "/apis", "", "", false, false, "", 200},
		"discovery, its headers":    {http.MethodHead, "/apis", "", "", false, false, "", 200},
		"OpenAPI":                   {http.MethodGet, "/openapi/v2", "", "", false, false, "", 200},
		"a path of the process":     {http.MethodGet, "/statusz", "", "", false, false, "", 200},
		"metrics":                   {http.MethodGet, "/metrics", "", "", false, false, "", 200},
		"an unknown path":           {http.MethodGet, "/nonsense", "", "", false, false, "", 404},
		"a probe":                   {http.MethodGet, "/readyz", "", "", false, true, "health", 200},
		"nobody":                    {http.MethodPost, path, runtime.ContentTypeJSON, event, false, true, "credentials", 401},
		"a wrong timeout":           {http.MethodPost, path + "?timeout=x", runtime.ContentTypeJSON, event, false, false, "timeout", 400},
		"the state of a replica":    {http.MethodPost, ReplicaStatePath, "", "{}", true, false, "replica state", 204},
		"a session of replication":  {http.MethodPost, ReplicationPath, "", "", true, false, "replication", 200},
		"impersonation, in a query": {http.MethodGet, query, "Impersonate-User", "", false, false, "impersonation", 403},
		"impersonation, of a group": {http.MethodPost, path, "Impersonate-Group", event, false, false, "impersonation", 403},
		"impersonation, of a uid":   {http.MethodPost, path, "Impersonate-Uid", event, false, false, "impersonation", 403},
		"impersonation, of extra":   {http.MethodPost, path, "Impersonate-Extra-Scopes", event, false, false, "impersonation", 403},
	} {
		for _, server := range []struct {
			name    string
			major   int
			observe bool // it answers queries only
		}{{"HTTP/1.1", 1, false}, {"HTTP/2", 2, false}, {"observe", 2, true}} {
			if name == "a session of replication" && (server.major == 1 || server.observe) {
				continue // it needs both directions, and what is replicated
			}
			t.Run(name+", "+server.name, func(t *testing.T) {
				options := DefaultOptions()
				options.Record = func(o *occurrence.Occurrence) { o.Settled(occurrence.Settlement{Outcome: occurrence.Created}) }
				filters, routes, err := newServer(ServerOptions{
					Intake: must(New(options)), Authenticator: accepting("jane"), Authorizer: allowing{}, Forwarder: leading{&gate{lasts: 2}},
					Replication:  func(context.Context, io.ReadWriteCloser) error { return nil },
					ReplicaState: func(string, []byte) error { return nil },
					Metrics:      http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }),
					Paths:        map[string]http.Handler{"/statusz": http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})},
					Queries:      answered{},
					QueriesOnly:  server.observe,
				})
				if err != nil {
					t.Fatal(err)
				}
				var passed, want []string
				noted := func(name string, next http.Handler) http.Handler {
					return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
						passed = append(passed, name)
						next.ServeHTTP(w, req)
					})
				}
				for i, f := range filters {
					want = append(want, f.name)
					filters[i].wrap = func(next http.Handler) http.Handler { return noted(f.name, f.wrap(next)) }
				}
				equal(t, "waits for a leader", slices.Contains(want, "leader"), !server.observe)
				want = append(want, "handler")
				if test.answers != "" {
					want = want[:slices.Index(want, test.answers)+1]
				}
				req := httptest.NewRequest(test.method, test.path, strings.NewReader(test.body))
				req.Proto, req.ProtoMajor = server.name, server.major
				if !test.anonymous {
					req.Header.Set("Authorization", "Bearer token")
				}
				if strings.HasPrefix(test.contentType, "Impersonate-") {
					req.Header.Set(test.contentType, "joe")
				} else if test.contentType != "" {
					req.Header.Set("Content-Type", test.contentType)
				}
				if test.forwarded {
					req.Header.Set(AssertedUserHeader, asserted)
				}
				w := httptest.NewRecorder()
				chain(filters, noted("handler", routes)).ServeHTTP(w, req)
				equal(t, "passed", passed, want)
				code := test.code
				if server.observe && strings.Contains(test.path, "/events") && test.answers == "" {
					code = 404 // it takes no Events
				}
				equal(t, "code", w.Code, code)
			})
		}
	}
}
