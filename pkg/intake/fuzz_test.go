package intake_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// answerable are the codes that a request with any body may be answered with. 500 is
// for a resourceVersion in a create, as in the apiserver.
var answerable = map[int]bool{200: true, 201: true, 400: true, 404: true, 405: true, 406: true, 409: true, 413: true, 415: true, 422: true, 500: true}

var fuzzedTypes = []string{jsonType, yamlType, protoType, jsonPatchType, mergeType, strategicType}

// FuzzCreate posts anything as a body. It costs no more than is reserved for it, and
// what is taken is valid: posted again as it was answered, it is taken again.
func FuzzCreate(f *testing.F) {
	for _, test := range hostileCreates() {
		if len(test.body) < 4000 {
			f.Add(byte(0), []byte(test.body))
			f.Add(byte(1), []byte(test.body))
		}
	}
	f.Add(byte(2), []byte(must(runtimeEncode(classic("a", 1)))))
	f.Add(byte(2), []byte(shortest(100)))
	s := serve(f, written())
	f.Fuzz(func(t *testing.T, contentType byte, body []byte) {
		s.Pipeline.Taken()
		mediaType := fuzzedTypes[contentType%3]
		a := s.atItsCost(t, http.MethodPost, coreEvents+"?dryRun=All", mediaType, body, 0)
		if a.Code == 201 {
			s.taken(t, a.Event(t))
		}
	})
}

// FuzzPatch applies anything as a patch of each type to a view, with the same promises.
func FuzzPatch(f *testing.F) {
	for _, test := range hostilePatches() {
		if len(test.body) < 4000 {
			for i := range byte(3) {
				f.Add(i, []byte(test.body))
			}
		}
	}
	f.Add(byte(0), []byte(`[{"op":"replace","path":"/count","value":3},{"op":"move","from":"/reason","path":"/message"}]`))
	f.Add(byte(1), []byte(`{"metadata":{"labels":null,"ownerReferences":[{"apiVersion":"v1","kind":"Pod","name":"a","uid":"b"}]}}`))
	f.Add(byte(2), []byte(`{"metadata":{"$setElementOrder/finalizers":["a/b"],"$deleteFromPrimitiveList/finalizers":["a/b"]},"$retainKeys":["count"]}`))
	s, n := serve(f, written()), 0
	f.Fuzz(func(t *testing.T, patchType byte, body []byte) {
		s.Pipeline.Taken()
		n++
		name := fmt.Sprint("a", n)
		view := classic(name, 1)
		view.Finalizers, view.Labels = []string{"a/b", "a/c"}, map[string]string{"a": "b"}
		s.Post(t, view).Want(t, 201, "")
		a := s.atItsCost(t, http.MethodPatch, coreEvents+"/"+name, fuzzedTypes[3+patchType%3], body, view.Size())
		if a.Code == 200 {
			s.taken(t, a.Event(t))
		}
		s.Patch(t, name, `{}`).Want(t, 200, "") // the view is still good for the next one
	})
}

// FuzzUnnamed posts anything with and without a name to both APIs, and has what is
// recorded end in several ways. An Event whose name was generated is another one each
// time, and its client is told to send it again only if nothing of it can have been
// recorded; one with a name is always recorded under that. The replica that passes a
// request on reads from its body what the leader does.
func FuzzUnnamed(f *testing.F) {
	named, generated := classic("a", 1), classic("", 1)
	generated.GenerateName = "a-"
	both := generated.DeepCopy()
	both.Name = "a"
	for _, event := range []*corev1.Event{named, generated, both, classic("", 1)} {
		inJSON := must(json.Marshal(event))
		for outcome := range byte(4) {
			f.Add(outcome, byte(0), false, inJSON)
			f.Add(outcome, byte(1), false, inJSON)
			f.Add(outcome, byte(2), false, []byte(must(runtimeEncode(event))))
		}
	}
	for outcome := range byte(4) {
		f.Add(outcome, byte(0), true, []byte(strings.Replace(fmt.Sprintf(newStyleJSON, ""), `"name":""`, `"generateName":"a-"`, 1)))
		f.Add(outcome, byte(0), true, []byte(fmt.Sprintf(newStyleJSON, "a")))
		f.Add(outcome, byte(1), false, []byte("metadata: {generateName: a-}\ninvolvedObject: {namespace: ns}\n"))
		f.Add(outcome, byte(0), false, []byte(`{"metadata":{"name":"a","name":"","generateName":"b"},"involvedObject":{"namespace":"ns"}}`))
		f.Add(outcome, byte(0), false, []byte(`{"Metadata":{"Name":"a"},"metadata":{"generateName":"b"},"involvedObject":{"namespace":"ns"}}`))
	}
	p := written()
	s := serve(f, p)
	outcomes := []*fakePipeline{
		written(), settled(uncertain), settled(dropped(occurrence.QueueFull, nil)), settled(stored(occurrence.Replayed, 1)),
	}
	f.Fuzz(func(t *testing.T, outcome, contentType byte, newAPI bool, body []byte) {
		path, api := coreEvents, occurrence.CoreV1
		if newAPI {
			path, api = newEvents, occurrence.EventsV1
		}
		post := func(outcome byte) (answer, []*occurrence.Occurrence) {
			p.Becomes(outcomes[outcome])
			a := s.Do(t, http.MethodPost, path, body, "Content-Type", fuzzedTypes[contentType%3])
			return a, p.Taken()
		}
		outcome %= byte(len(outcomes))
		a, recorded := post(outcome)
		if !answerable[a.Code] && a.Code != 429 && a.Code != 503 && a.Code != 504 {
			t.Errorf("answered %d: %s", a.Code, a.Body)
		}
		if len(recorded) == 0 {
			return
		}
		unnamed := intake.Unnamed(api, fuzzedTypes[contentType%3], body)
		times, code, again := 1, []int{201, 503, 429, 409}[outcome], a.Header.Get("Retry-After") != ""
		if unnamed && outcome == 1 {
			code = 504
		}
		if unnamed && outcome == 3 {
			times = 8 // each with another name
		}
		if times == 8 && len(recorded) >= times-2 {
			times = len(recorded) // a name that was posted before is not recorded
		}
		// That no name could be generated is to be tried again, as in the apiserver.
		if a.Code != code || len(recorded) != times || code != 409 && again != (code == 503 || code == 429) {
			t.Errorf("recorded %d times, answered %d, to be sent again %t: %s", len(recorded), a.Code, again, a.Body)
		}
		names := map[string]bool{}
		for _, o := range recorded {
			names[o.Client] = true
			if o.Client == "" || o.Event.Namespace != "ns" {
				t.Errorf("recorded as %s/%s", o.Event.Namespace, o.Client)
			}
		}
		equal(t, "names that are recorded", len(names), times)
		if outcome != 0 {
			return
		}
		first := a.Event(t)
		if first.Name != recorded[0].Client || unnamed && !strings.HasPrefix(first.Name, first.GenerateName[:min(len(first.GenerateName), 50)]) {
			t.Errorf("recorded as %s, answered as %s, of %q", recorded[0].Client, first.Name, first.GenerateName)
		}
		switch a, recorded := post(outcome); {
		case unnamed && (a.Code != 201 || len(recorded) != 1 || recorded[0].Client == first.Name):
			t.Errorf("sent again, it is recorded %d times and answered %d: %s", len(recorded), a.Code, a.Body)
		case !unnamed && (a.Code != 409 || len(recorded) != 0):
			t.Errorf("with a name, it is recorded again, or answered %d: %s", a.Code, a.Body)
		}
	})
}

func (s *server) atItsCost(t *testing.T, method, path, mediaType string, body []byte, view int) answer {
	t.Helper()
	const slack = 1 << 20 // what the process does beside
	a, allocated := s.allocating(t, method, path, body, "Content-Type", mediaType)
	reserved := intake.CostOf(mediaType, int64(len(body)), intake.DefaultOptions().MaxBodyBytes) + int64(view)*intake.JSONFactor
	if allocated > measuredFactor*reserved+slack {
		t.Errorf("%d KiB allocated for %d bytes, and %d reserved", allocated>>10, len(body), reserved>>10)
	}
	if !answerable[a.Code] {
		t.Errorf("answered %d: %s", a.Code, a.Body)
	}
	return a
}

// taken says whether an Event that was answered is one that would be taken.
func (s *server) taken(t *testing.T, event *corev1.Event) {
	t.Helper()
	event.Name, event.ResourceVersion, event.UID = "another", "", ""
	if a := s.Do(t, http.MethodPost, coreEvents+"?dryRun=All", event); a.Code != 201 {
		t.Errorf("%+v was answered, and is refused: %s", event, a.Body)
	}
}

// FuzzTarget sends a valid body with any method to any URL: what is recorded was
// answered as a success, and has the namespace and the name of the URL.
func FuzzTarget(f *testing.F) {
	for _, target := range append(unclearPaths,
		coreEvents, newEvents, coreEvents+"/a", "/api/v1/events", "/api/v1/watch/namespaces/ns/events", coreEvents+"/a/status",
		"/api/v1/namespaces/ns/events/..", "/api/v1/namespaces/%2e%2e/events", "/api/v1/namespaces/ns/events/a%2fb", "//api/v1/namespaces/ns/events",
		coreEvents+"?timeout=1s&dryRun=All&fieldManager=a&fieldValidation=Strict&pretty=1", coreEvents+"?timeout=-1", coreEvents+"?dryRun=&dryRun=All",
		"/apis", "/metrics", "/readyz?verbose&exclude=x", "/version/",
	) {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodGet} {
			f.Add(method, target)
		}
	}
	s := serve(f, written())
	f.Fuzz(func(t *testing.T, method, target string) {
		parsed, err := url.ParseRequestURI(target)
		if err != nil || len(target) > 4000 || strings.ContainsAny(method, " \t\r\n") || method == "" {
			return // net/http has refused it
		}
		body := `{"metadata":{"name":"a","namespace":"ns"},"involvedObject":{"namespace":"ns"}}`
		req := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", strings.NewReader(body))
		req.Method, req.URL, req.RequestURI = method, parsed, target
		req.Header.Set("Content-Type", jsonType)
		if method == http.MethodPatch {
			req.Header.Set("Content-Type", mergeType)
		}
		a := s.Send(req)
		for _, o := range s.Pipeline.Taken() {
			if a.Code/100 != 2 || o.Event.Namespace != "ns" || o.Client != "a" {
				t.Errorf("%s %s recorded %s/%s, and was answered %d", method, target, o.Event.Namespace, o.Client, a.Code)
			}
		}
		// As by the apiserver, which TestInputsAreAnsweredAsByTheAPIServer shows. Whoever
		// gives it too little time is told so.
		unclear, late := unclear(parsed.Path), a.Code == 504 && parsed.Query().Has("timeout")
		if unclear != (a.Code == 500) || a.Code > 500 && !late {
			t.Errorf("%s %s: %d %s", method, target, a.Code, a.Body)
		}
	})
}

// FuzzAssertedUser: an asserted user that can be decoded has a name, and is the same
// after it is encoded again.
func FuzzAssertedUser(f *testing.F) {
	encoded := must(intake.EncodeUser(&user.DefaultInfo{Name: "n", UID: "u", Groups: []string{"g"}, Extra: map[string][]string{"k": {"v"}}}))
	for _, seed := range []string{encoded, "", "e30=", "bnVsbA==", "eyJ1c2VybmFtZSI6ImEifQ==", "!"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, header string) {
		u, err := intake.DecodeUser([]string{header})
		if err != nil {
			return
		}
		if u.GetName() == "" {
			t.Errorf("%q asserts a user without a name", header)
		}
		same := must(intake.DecodeUser([]string{must(intake.EncodeUser(u))}))
		equal(t, header+", written and read again", fmt.Sprintf("%+v", same), fmt.Sprintf("%+v", u))
	})
}

// FuzzShape: valid JSON is refused only for more values or levels than there may be,
// and never accepted with them.
func FuzzShape(f *testing.F) {
	for _, seed := range []string{`{"a":[1,"[,\"",{}]}`, `"\\"`, `[[]]`, strings.Repeat("[", 70) + strings.Repeat("]", 70), filled(2000, "[", same("1"), "]")} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var value any
		err := intake.CheckShape(body)
		if json.Unmarshal(body, &value) != nil {
			return
		}
		values, depth := shapeOf(value)
		if err == nil && (values > intake.MaxValues || depth > intake.MaxDepth) {
			t.Errorf("%d values in %d levels are accepted", values, depth)
		}
		if err != nil && len(body) < intake.MaxValues && depth <= intake.MaxDepth {
			t.Errorf("%s is refused: %v", body, err)
		}
	})
}

// shapeOf counts items and members, and levels.
func shapeOf(value any) (values, depth int) {
	var children []any
	switch value := value.(type) {
	case map[string]any:
		children = slices.Collect(maps.Values(value))
	case []any:
		children = value
	default:
		return 0, 0
	}
	for _, child := range children {
		n, below := shapeOf(child)
		values, depth = values+n+1, max(depth, below)
	}
	return values, depth + 1
}
