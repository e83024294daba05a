package faultproxy

import (
	"bytes"
	"net/http"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	core   = "/api/v1/namespaces/ns/events"
	events = "/apis/events.k8s.io/v1/namespaces/ns/events"
)

func TestEventWritesAreRecognized(t *testing.T) {
	for name, test := range map[string]struct {
		method, path, body string
		want               Request
	}{
		"create":                     {"POST", core, eventNamed("a"), Request{Verb: Create, API: CoreV1, Name: "a"}},
		"create, new style":          {"POST", events, eventNamed("a"), Request{Verb: Create, API: EventsV1, Name: "a"}},
		"create with a query":        {"POST", core + "?timeout=5s", eventNamed("a"), Request{Verb: Create, API: CoreV1, Name: "a"}},
		"create, generated name":     {"POST", core, `{"kind":"Event","apiVersion":"v1","metadata":{"generateName":"a-"}}`, Request{Verb: Create, API: CoreV1, Name: "a-*"}},
		"create of something else":   {"POST", core, "?", Request{Verb: Create, API: CoreV1}},
		"update":                     {"PUT", core + "/a.b", eventNamed("a"), Request{Verb: Update, API: CoreV1, Name: "a.b"}},
		"patch":                      {"PATCH", events + "/a.b", `{"series":{}}`, Request{Verb: Patch, API: EventsV1, Name: "a.b"}},
		"empty patch":                {"PATCH", core + "/a", `{}`, Request{Verb: Patch, API: CoreV1, Name: "a", Empty: true}},
		"empty patch with blanks":    {"PATCH", core + "/a", " {\n} ", Request{Verb: Patch, API: CoreV1, Name: "a", Empty: true}},
		"patch that is no JSON":      {"PATCH", core + "/a", "null", Request{Verb: Patch, API: CoreV1, Name: "a"}},
		"update with an empty body":  {"PUT", core + "/a", "{}", Request{Verb: Update, API: CoreV1, Name: "a"}},
		"create in protobuf":         {"POST", core, protobuf(t, schema.GroupVersion{Version: "v1"}, &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}), Request{Verb: Create, API: CoreV1, Name: "a"}},
		"create in protobuf, events": {"POST", events, protobuf(t, eventsv1.SchemeGroupVersion, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}), Request{Verb: Create, API: EventsV1, Name: "a"}},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := http.NewRequestWithContext(t.Context(), test.method, "https://proxy"+test.path, nil)
			if err != nil {
				t.Fatal(err)
			}
			request, isWrite := writeTarget(r)
			request.read([]byte(test.body))
			test.want.Namespace = "ns"
			if !isWrite || request != test.want {
				t.Errorf("it is %+v (%v), want %+v", request, isWrite, test.want)
			}
		})
	}
}

func protobuf(t *testing.T, version schema.GroupVersion, object runtime.Object) string {
	info, ok := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("no protobuf")
	}
	var body bytes.Buffer
	if err := scheme.Codecs.EncoderForVersion(info.Serializer, version).Encode(object, &body); err != nil {
		t.Fatal(err)
	}
	return body.String()
}

func TestEverythingElsePassesWithoutAFault(t *testing.T) {
	backend := newFake(t)
	p := New(t, backend.config, 1)
	p.SetRules(always(BeforeWrite(Status(500))))
	p.SetCapacity(1)
	c := clientOf(t, p)
	for _, test := range [][2]string{
		{"GET", core + "/a"}, {"GET", core}, {"DELETE", core + "/a"}, {"DELETE", core}, {"POST", core + "/a"}, {"PATCH", core}, {"PUT", core + "/a/status"},
		{"POST", "/api/v1/namespaces"}, {"POST", "/api/v1/namespaces/ns/pods"}, {"GET", "/apis/events.k8s.io/v1/events"},
		{"POST", "/apis/apps/v1/namespaces/ns/events"}, {"GET", "/readyz?verbose"},
	} {
		if g := c.do(t.Context(), test[0], test[1], ""); g.code != http.StatusCreated {
			t.Errorf("%v: the client got %d, %v", test, g.code, g.err)
		}
		if seen := backend.seen(); seen[len(seen)-1].method != test[0] || seen[len(seen)-1].path != test[1] {
			t.Errorf("%v: the backend got %+v", test, seen[len(seen)-1])
		}
	}
	if r := p.Record(); len(r) != 0 {
		t.Errorf("recorded is %+v", r)
	}
}

func TestPassingWriteIsHandedOnAsItCame(t *testing.T) {
	for proto, next := range protocols {
		t.Run(proto, func(t *testing.T) {
			backend := newFake(t)
			backend.config.Host += "/prefix"
			p := New(t, backend.config, 1)
			g := clientOf(t, p, next...).do(t.Context(), http.MethodPatch, core+"/a%2Cb?dryRun=All", `{"count":2}`,
				"Content-Type", "application/strategic-merge-patch+json", "Accept", "application/json", "User-Agent", "test", "Authorization", "Bearer token")
			wantCreated(t, g)
			if g.header.Get("Audit-Id") != "of the backend" || g.body != `{"kind":"Event","apiVersion":"v1"}` {
				t.Errorf("the client got %+v", g)
			}
			w := backend.seen()[0]
			if w.method != http.MethodPatch || w.path != "/prefix"+core+"/a%2Cb?dryRun=All" || w.body != `{"count":2}` {
				t.Errorf("the backend got %+v", w)
			}
			for key, want := range map[string]string{
				"Content-Type": "application/strategic-merge-patch+json", "Accept": "application/json", "User-Agent": "test", "Authorization": "Bearer token",
			} {
				if got := w.header.Get(key); got != want {
					t.Errorf("%s is %q", key, got)
				}
			}
		})
	}
}
