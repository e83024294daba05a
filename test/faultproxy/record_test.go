package faultproxy

import (
	"bytes"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
)

func TestEventWritesAreRecognized(t *testing.T) {
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	var protobuf bytes.Buffer
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Name: "a"}}
	encoder := scheme.Codecs.EncoderForVersion(info.Serializer, schema.GroupVersion{Version: "v1"})
	if err := encoder.Encode(event, &protobuf); err != nil {
		t.Fatal(err)
	}
	const group = "events.k8s.io"
	_, p, c := setUp(t)
	var want Record
	for _, test := range []struct {
		method, path, body string
		want               Request
	}{
		{"POST", core, eventNamed("a"), Request{"create", "", "ns", "a"}},
		{"POST", events, eventNamed("a"), Request{"create", group, "ns", "a"}},
		{"POST", core + "?timeout=5s", protobuf.String(), Request{"create", "", "ns", "a"}},
		{"POST", core, "?", Request{"create", "", "ns", ""}},
		{"PUT", core + "/a.b", eventNamed("a"), Request{"update", "", "ns", "a.b"}},
		{"PATCH", events + "/a.b", `{"series":{}}`, Request{"patch", group, "ns", "a.b"}},
	} {
		c.do(t.Context(), test.method, test.path, test.body).want(t, 201)
		want = append(want, Entry{Request: test.want, Forwarded: true, Status: 201, Answer: 201, Ended: true})
	}
	if got := p.Record(); !slices.Equal(got, want) {
		t.Errorf("recorded is %+v, want %+v", got, want)
	}
}

func TestEverythingElsePassesWithoutAFault(t *testing.T) {
	backend, p, c := setUp(t, always(BeforeWrite(Status(500))))
	for _, test := range [][2]string{
		{"GET", core + "/a"}, {"GET", core}, {"DELETE", core + "/a"}, {"DELETE", core},
		{"POST", core + "/a"}, {"PATCH", core}, {"PUT", core + "/a/status"},
		{"POST", "/api/v1/namespaces"}, {"POST", "/api/v1/namespaces/ns/pods"}, {"GET", "/apis/events.k8s.io/v1/events"},
		{"POST", "/apis/apps/v1/namespaces/ns/events"}, {"GET", "/readyz?verbose"},
	} {
		c.do(t.Context(), test[0], test[1], "").want(t, 201)
		if w := receive(t, backend.arrived); w.method != test[0] || w.path != test[1] {
			t.Errorf("%v: the backend got %+v", test, w)
		}
	}
	if r := p.Record(); len(r) != 0 {
		t.Errorf("recorded is %+v", r)
	}
}
