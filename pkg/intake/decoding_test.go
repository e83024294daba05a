package intake_test

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"

	"github.com/eventd/eventd/pkg/intake"
)

const (
	yamlType  = "application/yaml"
	protoType = "application/vnd.kubernetes.protobuf"
	largeBody = 128 << 10
)

// A hostile body is one that costs far more than its length, in a kube-apiserver
// or in what it is built of.
type hostileBody struct {
	name, contentType, body string
	code                    int
}

// filled returns before + item(0) + "," + item(1) … + after, of about size bytes.
func filled(size int, before string, item func(i int) string, after string) string {
	var b strings.Builder
	b.WriteString(before)
	for i := 0; b.Len()+len(after) < size; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(item(i))
	}
	return b.String() + after
}

func same(s string) func(int) string { return func(int) string { return s } }

func numbered(format string) func(int) string {
	return func(i int) string { return fmt.Sprintf(format, i) }
}

// nested returns a JSON Event with something in its metadata, and something beside.
func nested(metadata, beside string) string {
	return `{"apiVersion":"v1","kind":"Event","metadata":{"name":"x","namespace":"ns"` + metadata + `},` +
		`"involvedObject":{"kind":"Pod","namespace":"ns","name":"web-0"},"reason":"a","type":"Normal","count":1` + beside + `}`
}

func hostileCreates() []hostileBody {
	list := func(size int, field string, item func(int) string) string {
		return nested(filled(size, `,"`+field+`":[`, item, "]"), "")
	}
	object := func(size int, field string, item func(int) string) string {
		return nested(filled(size, `,"`+field+`":{`, item, "}"), "")
	}
	owners := make([]metav1.OwnerReference, 6000)
	for i := range owners {
		owners[i].Kind = fmt.Sprint(i)
	}
	proto := func(meta metav1.ObjectMeta) string {
		e := classic("x", 1)
		meta.Name, meta.Namespace = e.Name, e.Namespace
		e.ObjectMeta = meta
		return must(runtimeEncode(e))
	}
	return []hostileBody{
		{"empty owners", jsonType, list(largeBody, "ownerReferences", same("{}")), 413},
		// 34 s of CPU and 9.6 GiB, before: owners of one uid are compared pairwise.
		{"owners of one uid", jsonType, list(largeBody, "ownerReferences", numbered(`{"kind":"%x"}`)), 413},
		{"few owners of one uid", jsonType, list(7000, "ownerReferences", numbered(`{"kind":"%x"}`)), 413},
		{"owners of one uid in YAML", yamlType, list(15_000, "ownerReferences", numbered(`{"kind": "%x"}`)), 413},
		{"block lists in YAML", yamlType, "apiVersion: v1\nkind: Event\nmetadata:\n  ownerReferences:\n" + strings.Repeat("  -\n", 4000), 400},
		{"owners of one uid in protobuf", protoType, proto(metav1.ObjectMeta{OwnerReferences: owners}), 413},
		{"empty finalizers", jsonType, list(largeBody, "finalizers", same(`""`)), 413},
		{"empty finalizers in protobuf", protoType, proto(metav1.ObjectMeta{Finalizers: make([]string, 60_000)}), 413},
		{"managed fields", jsonType, list(largeBody, "managedFields", same("{}")), 413},
		{"managed fields in protobuf", protoType, proto(metav1.ObjectMeta{ManagedFields: make([]metav1.ManagedFieldsEntry, 9_000)}), 413},
		{"labels", jsonType, object(largeBody, "labels", numbered(`"%x":""`)), 413},
		{"few labels that are not valid", jsonType, object(600, "labels", numbered(`"!%x":"!"`)), 422},
		{"large labels that are not valid", jsonType, object(largeBody-4000, "labels", numbered(`"!%x`+strings.Repeat("!", 2000)+`":""`)), 422},
		{"unknown fields", jsonType, nested("", filled(largeBody, ",", numbered(`"%x":""`), "")), 413},
		{"unknown lists in YAML", yamlType, nested("", filled(16_000, `,"x":[`, same("a"), "]")), 201},
		{"a large one in YAML", yamlType, nested("", filled(largeBody, `,"x":[`, same("[]"), "]")), 413},
		{"unknown members in YAML", yamlType, nested("", filled(16_000, `,"x":{`, numbered("%x: 1"), "}")), 201},
		{"deep", jsonType, nested("", `,"x":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), 400},
		{"deep YAML", yamlType, nested("", `,"x":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), 413},
		{"deep YAML, its type in upper case", strings.ToUpper(yamlType), nested("", `,"x":`+strings.Repeat("[", 9000)+strings.Repeat("]", 9000)), 413},
		{"less deep YAML", yamlType, nested("", `,"x":`+strings.Repeat("[", 500)+strings.Repeat("]", 500)), 201},
		{"aliases in YAML", yamlType, "apiVersion: v1\nkind: Event\nx: &x " + filled(2000, "[", same("a"), "]") +
			"\ny: &y " + filled(800, "[", same("*x"), "]") + "\nz: " + filled(800, "[", same("*y"), "]\n"), 400},
		{"wide aliases in YAML", yamlType, "apiVersion: v1\nkind: Event\nx: &x " + filled(15_000, "[", same("a"), "]") +
			"\ny: " + filled(40, "[", same("*x"), "]\n"), 400},
		{"no aliases in YAML", yamlType, nested("", `,"message":"R&D * 2*3 & x"`), 201},
		{"what looks like aliases in YAML", yamlType, nested("", `,"message":"&x *y"`), 400},
		{"no aliases, in YAML that is large when it is parsed", yamlType, "? '*&'\n" + strings.Repeat("?\n", 8_000), 400},
		{"the shortest elements of protobuf", protoType, shortest(largeBody), 413},
		{"the shortest elements of protobuf, behind others that end too early", protoType, strings.Replace(shortest(largeBody), "k8s\x00", "k8s\x00\x12\x01\x0a", 1), 413},
		{"groups of protobuf", protoType, shortest(2) + strings.Repeat("\x2b", largeBody), 400},
		{"a number of a field of protobuf that overflows to that of lists", protoType, overflowing(largeBody), 400},
		{"lists of another kind in protobuf", protoType, strings.Replace(shortest(largeBody), "Event", "Codes", 1), 413},
		{"a digit that does not end", jsonType, nested("", `,"y":`+strings.Repeat("9", largeBody)), 201},
		{"a time that is none", jsonType, nested("", `,"eventTime":"`+strings.Repeat("9", largeBody)+`"`), 400},
		{"a kind that is none", jsonType, `{"apiVersion":"v1","kind":"` + strings.Repeat("x", largeBody) + `"}`, 400},
		{"a message that grows when it is answered", jsonType, nested("", `,"message":"`+strings.Repeat("<", largeBody)+`"`), 201},
	}
}

func hostilePatches() []hostileBody {
	metadata := func(members string) string { return `{"metadata":{` + members + `}}` }
	copies := func(n int) string {
		grow := `[{"op":"add","path":"/metadata/labels","value":{"a":"` + strings.Repeat("x", 300) + `"}}`
		for i := range n {
			grow += fmt.Sprintf(`,{"op":"copy","from":"/metadata","path":"/metadata/x%d"}`, i)
		}
		return grow + "]"
	}
	return []hostileBody{
		// Each copy doubles what there is: 1.4 GB with 25 of them, before.
		{"copies of copies", jsonPatchType, copies(25), 422},
		{"few copies of copies", jsonPatchType, copies(8), 422},
		{"insertions", jsonPatchType, `[{"op":"add","path":"/x","value":` + filled(largeBody/2, "[", same("0"), "]") + `}` +
			strings.Repeat(`,{"op":"add","path":"/x/0","value":0}`, 1700) + `]`, 413},
		{"operations", jsonPatchType, filled(largeBody, "[", same("{}"), "]"), 413},
		{"a value that is none", jsonPatchType, `[{"op":"add","path":"/metadata/annotations","value":{"a":["` + strings.Repeat(`\u0001`, 20_000) + `"]}}]`, 422},
		// 16 s of CPU and 1.9 GiB, before: each level is merged as often as it is deep.
		{"a deep merge", mergeType, strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000), 400},
		{"merged owners", mergeType, metadata(filled(largeBody, `"ownerReferences":[`, numbered(`{"kind":"%x"}`), "]")), 413},
		{"a large merge", mergeType, metadata(`"annotations":{"a":"` + strings.Repeat("x", largeBody-100) + `"}`), 200},
		// 19 s of CPU, before: finalizers are merged pairwise.
		{"finalizers", strategicType, metadata(filled(largeBody, `"finalizers":[`, numbered(`"a/%x"`), "]")), 413},
		{"few finalizers", strategicType, metadata(filled(4600, `"finalizers":[`, numbered(`"a/%x"`), "]")), 413},
		{"ordered owners", strategicType, metadata(filled(2000, `"$setElementOrder/ownerReferences":[`, numbered(`{"uid":"%x"}`), "]") +
			filled(2000, `,"ownerReferences":[`, numbered(`{"uid":"%x"}`), "]")), 413},
		{"deleted owners", strategicType, metadata(filled(largeBody, `"ownerReferences":[`, numbered(`{"uid":"%x","$patch":"delete"}`), "]")), 413},
		{"a large strategic merge", strategicType, metadata(`"annotations":{"a":"` + strings.Repeat("x", largeBody-100) + `"}`), 200},
	}
}

// shortest returns a message of Kubernetes protobuf, a runtime.Unknown, whose raw
// bytes are an Event's metadata of nothing but empty owner references.
func shortest(size int) string { return withField(1, size) }

// overflowing is shortest with a number of metadata that has more than 32 bits.
func overflowing(size int) string { return withField(1<<32|1, size) }

func withField(metadata, size int) string {
	field := func(number int, data string) string {
		return string(binary.AppendUvarint(binary.AppendUvarint(nil, uint64(number<<3|2)), uint64(len(data)))) + data
	}
	event := field(metadata, strings.Repeat("\x6a\x00", size/2)) // field 13
	kind := field(1, "v1") + field(2, "Event")
	return "k8s\x00" + field(1, kind) + field(2, event)
}

func runtimeEncode(e *corev1.Event) (string, error) {
	var b strings.Builder
	err := protobuf.NewSerializer(nil, nil).Encode(e, &b)
	return b.String(), err
}

// What any body can make decoding allocate is what is reserved for it, and none keeps
// a processor busy. The seconds are many times what it takes.
func TestDecodingAllocatesNoMoreThanItReserves(t *testing.T) {
	for _, test := range hostileCreates() {
		decodesAtItsCost(t, test, http.MethodPost, coreEvents, 0)
	}
	for _, test := range hostilePatches() {
		decodesAtItsCost(t, test, http.MethodPatch, coreEvents+"/p", classic("p", 1).Size())
	}
}

func decodesAtItsCost(t *testing.T, test hostileBody, method, path string, view int) {
	const maxBody = largeBody + 4<<10
	t.Run(test.name, func(t *testing.T) {
		s := serve(t, written(), withOptions(func(o *intake.Options) { o.MaxBodyBytes = maxBody }))
		if method == http.MethodPatch {
			s.Post(t, classic("p", 1)).Want(t, 201, "")
		}
		begun := time.Now()
		a, allocated := s.allocating(t, method, path, test.body, "Content-Type", test.contentType, "Accept-Encoding", "gzip")
		took := time.Since(begun)
		if a.Code != test.code {
			t.Errorf("answered %d, want %d: %.300s", a.Code, test.code, a.Body)
		}
		reserved := intake.CostOf(test.contentType, int64(len(test.body)), maxBody) + int64(view)*intake.JSONFactor
		t.Logf("%d KiB of %d KiB reserved for %d bytes, in %s", allocated>>10, reserved>>10, len(test.body), took)
		if allocated > measuredFactor*reserved {
			t.Errorf("%d KiB allocated for %d bytes, and only %d reserved", allocated>>10, len(test.body), reserved>>10)
		}
		if took > 5*time.Second {
			t.Errorf("took %s", took)
		}
		if encoding := a.Header.Get("Content-Encoding"); len(a.Body) > 8*maxBody || encoding != "" {
			t.Errorf("answered with %d bytes, compressed by %q", len(a.Body), encoding)
		}
	})
}

// allocating returns the response to a request, and how many bytes were allocated for it.
func (s *server) allocating(t *testing.T, method, path string, body any, header ...string) (answer, int64) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	a := s.Do(t, method, path, body, header...)
	runtime.ReadMemStats(&after)
	return a, int64(after.TotalAlloc - before.TotalAlloc)
}

// The apiserver answers all errors there are in the metadata of an Event, which takes
// the square of their number to make. The first are enough, for every verb.
func TestFirstErrorsOfMetadataAreAnswered(t *testing.T) {
	labels := func(n int) string { return filled(len(`"!00":"",`)*n-len(",")+2, "{", numbered(`"!%02d":""`), "}") }
	s := serve(t, written())
	s.Post(t, classic("known", 1)).Want(t, 201, "")
	for n, want := range map[int]int{9: 9, 16: 16, 17: 16, 40: 16} {
		event := strings.Replace(string(must(json.Marshal(classic("NAME", 1)))), `"namespace":"ns"`, `"namespace":"ns","labels":`+labels(n), 1)
		patch := `{"metadata":{"labels":` + labels(n) + `}}`
		for _, test := range []struct{ method, name, path string }{
			{http.MethodPost, "new", ""},
			{http.MethodPost, "known", ""},
			{http.MethodPut, "new", "/new"},
			{http.MethodPut, "known", "/known"},
			{http.MethodPatch, "known", "/known"},
		} {
			for _, query := range []string{"", "?dryRun=All"} {
				body := strings.Replace(event, "NAME", test.name, 1)
				if test.method == http.MethodPatch {
					body = patch
				}
				a := s.Do(t, test.method, coreEvents+test.path+query, body)
				a.Want(t, http.StatusUnprocessableEntity, metav1.StatusReasonInvalid)
				equal(t, fmt.Sprintf("%v with %d errors: answered", test, n), len(a.Status(t).Details.Causes), want)
			}
		}
	}
}

func mustJSON(_ *testing.T, v any) []byte { return must(json.Marshal(v)) }
