package intake_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"

	"github.com/eventd/eventd/pkg/batch"
	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/intaketest"
)

const (
	coreBatch = coreEvents + "?" + batch.Query
	newBatch  = newEvents + "?" + batch.Query
)

// listOf returns the JSON of a list with the JSON of its Events.
func listOf(apiVersion string, items ...string) string {
	return fmt.Sprintf(`{"apiVersion":%q,"kind":"EventList","items":[%s]}`, apiVersion, strings.Join(items, ","))
}

// manyEvents are of one series each.
func manyEvents(n int) *corev1.EventList {
	list := &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}}
	for i := range n {
		event := classic(fmt.Sprint("web-0.", i), 1)
		event.InvolvedObject.Name = fmt.Sprint("web-", i)
		list.Items = append(list.Items, *event)
	}
	return list
}

// inProtobuf encodes a list.
func inProtobuf(t testing.TB, apiVersion string, list interface{ Marshal() ([]byte, error) }) []byte {
	t.Helper()
	raw, err := list.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	body, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: apiVersion, Kind: "EventList"}, Raw: raw}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), body...)
}

// batch posts a list, and returns the Status of each of its n Events.
func (s *server) batch(t testing.TB, path string, body any, n int, header ...string) []metav1.Status {
	t.Helper()
	a := s.Do(t, http.MethodPost, path, body, header...)
	return statuses(t, a, n)
}

func statuses(t testing.TB, a answer, n int) []metav1.Status {
	t.Helper()
	var got batch.Answer
	if err := json.Unmarshal(a.Body, &got); err != nil || a.Code != http.StatusOK {
		t.Fatalf("%d: %s", a.Code, a.Body)
	}
	all, err := got.Statuses(n)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func codes(statuses []metav1.Status) (codes []int32) {
	for i := range statuses {
		codes = append(codes, statuses[i].Code)
	}
	return codes
}

// Each Event of a batch is answered as a POST of it alone.
func TestEventsOfABatchAreAnsweredAsIfEachWereAlone(t *testing.T) {
	valid := string(must(json.Marshal(classic("valid", 1))))
	with := func(old, new string) string {
		out := strings.Replace(valid, old, new, 1)
		if out == valid {
			t.Fatalf("no %s in %s", old, valid)
		}
		return out
	}
	for query, apiVersion := range map[string]string{
		coreEvents + "?": "v1", newEvents + "?": "events.k8s.io/v1",
		coreEvents + "?fieldValidation=Strict&": "v1", coreEvents + "?fieldValidation=Ignore&": "v1", newEvents + "?fieldValidation=Warn&": "events.k8s.io/v1",
	} {
		items := []string{
			with(`"count":1`, `"nonsense":1`), with(`"count":1`, `"Count":1`), with(`"count":1`, `"count":1,"count":2`),
			valid, valid, with(`"valid"`, `"other"`), with(`"valid"`, `"Not a name"`),
			with(`"namespace":"ns"`, `"namespace":"elsewhere"`), with(`"count":1`, `"count":"one"`), with(`"count":1`, `"count":7`),
			with(`"metadata":{`, `"metadata":{"resourceVersion":"5",`), with(`"metadata":{`, `"metadata":{"labels":{"a b":"c"},`),
			with(`"kind":"Event"`, `"kind":"Pod"`), with(`"v1"`, `"events.k8s.io/v1"`), `{}`, `null`, `7`, `"x"`, `[]`,
			strings.Repeat(`{"metadata":`, 70) + "1" + strings.Repeat("}", 70),
			with(`"metadata":{`, `"metadata":{"annotations":{"x":"`+strings.Repeat("x", 300<<10)+`"},`),
			with(`"metadata":{`, `"metadata":{"finalizers":[`+strings.Repeat(`"a/b",`, 600)+`"a/b"],`),
			fmt.Sprintf(intaketest.NewStyleJSON, "new"), fmt.Sprintf(intaketest.NewStyleJSON, "No"),
			strings.Replace(fmt.Sprintf(intaketest.NewStyleJSON, "new-2"), `"action":"Binding",`, "", 1),
		}
		alone := serve(t, written())
		var want []string
		for _, item := range items {
			a := alone.Do(t, http.MethodPost, query, item)
			var status metav1.Status
			if err := json.Unmarshal(a.Body, &status); err != nil {
				t.Fatal(err)
			}
			if a.Code < 300 { // it is the Event
				status = metav1.Status{}
			}
			want = append(want, fmt.Sprint(a.Code, " ", status.Reason, causes(&status)))
		}
		together := serve(t, written())
		var got []string
		for _, status := range together.batch(t, query+batch.Query, listOf(apiVersion, items...), len(items)) {
			got = append(got, fmt.Sprint(status.Code, " ", status.Reason, causes(&status)))
		}
		for i := range items {
			if items[i] == "{}" || items[i] == "null" { // in a batch it needs a name
				want[i] = "400 BadRequest[]"
			}
			if got[i] != want[i] {
				t.Errorf("%s, %.200s: %s in a batch, %s alone", query, items[i], got[i], want[i])
			}
		}
		equal(t, "what is recorded", len(together.Pipeline.Occurrences()), len(alone.Pipeline.Occurrences()))
	}
}

// A batch has each warning once that its Events would have alone.
func TestBatchWarnsOfFieldsThatAreIgnored(t *testing.T) {
	misspelt := strings.Replace(string(must(json.Marshal(classic("a", 1)))), `"count":1`, `"Count":1`, 1)
	list := listOf("v1", misspelt, strings.Replace(misspelt, `"a"`, `"b"`, 1))
	for query, want := range map[string]struct {
		code     int32
		warnings []string
	}{
		"":                        {201, []string{`299 - "unknown field \"Count\""`}},
		"&fieldValidation=Warn":   {201, []string{`299 - "unknown field \"Count\""`}},
		"&fieldValidation=Ignore": {201, nil},
		"&fieldValidation=Strict": {400, nil},
	} {
		a := serve(t, written()).Do(t, http.MethodPost, coreBatch+query, list)
		equal(t, query+": codes", codes(statuses(t, a, 2)), []int32{want.code, want.code})
		equal(t, query+": warnings", a.Header.Values("Warning"), want.warnings)
	}
}

// causes are what an error is about. One of the server has a text only.
func causes(s *metav1.Status) (out []string) {
	if s.Code == http.StatusInternalServerError {
		return []string{s.Message}
	}
	if s.Details != nil {
		for _, c := range s.Details.Causes {
			out = append(out, fmt.Sprint(c.Type, " ", c.Field))
		}
	}
	return out
}

// A batch is authorized once, and answered in a few bytes.
func TestBatchInProtobufIsOneRequest(t *testing.T) {
	list := manyEvents(batch.MaxItems)
	newList := &eventsv1.EventList{}
	if err := json.Unmarshal([]byte(listOf("events.k8s.io/v1", fmt.Sprintf(newStyleJSON, "a"), fmt.Sprintf(newStyleJSON, "b"))), newList); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		path string
		body []byte
		n    int
	}{
		"core/v1":          {coreBatch, inProtobuf(t, "v1", list), len(list.Items)},
		"events.k8s.io/v1": {newBatch, inProtobuf(t, "events.k8s.io/v1", newList), 2},
	} {
		t.Run(name, func(t *testing.T) {
			var reviews atomic.Int64
			s := serve(t, written(), authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
				reviews.Add(1)
				return authorizer.DecisionAllow, "", nil
			}))
			a := s.Do(t, http.MethodPost, test.path, test.body, "Content-Type", runtime.ContentTypeProtobuf)
			for i, status := range statuses(t, a, test.n) {
				if status.Code != 201 {
					t.Fatalf("%d: %+v", i, status)
				}
			}
			if len(a.Body) > 200 || reviews.Load() != 2 {
				t.Errorf("%d reviews, answer %s", reviews.Load(), a.Body)
			}
			s.Pipeline.WantRecorded(t, test.n)
			s.WantMetric(t, float64(test.n), "eventd_intake_batched_events_total", "201")
			// Sent again, it counts nothing.
			for _, status := range s.batch(t, test.path, test.body, test.n, "Content-Type", runtime.ContentTypeProtobuf) {
				if status.Code != 409 {
					t.Fatalf("%+v", status)
				}
			}
			s.WantMetric(t, float64(test.n), "eventd_intake_batched_events_total", "409")
			s.Pipeline.WantRecorded(t, test.n)
		})
	}
}

// A deferred report is 202, as alone.
func TestDeferredEventsOfABatchAreAccepted(t *testing.T) {
	s := serve(t, written())
	s.Pipeline.WriteLater(true)
	a := s.Do(t, http.MethodPost, coreBatch, manyEvents(3))
	equal(t, "codes", codes(statuses(t, a, 3)), []int32{202, 202, 202})
	if strings.Contains(string(a.Body), "others") {
		t.Errorf("%s", a.Body)
	}
}

// What is no batch is refused as a whole, and records nothing.
func TestMalformedBatchesAreRefused(t *testing.T) {
	valid := string(must(json.Marshal(classic("valid", 1))))
	tooMany := listOf("v1", strings.Repeat("{},", batch.MaxItems)+"{}")
	for name, test := range map[string]struct {
		path, body, contentType string
		code                    int
	}{
		"empty":                 {body: "", code: 400},
		"no JSON":               {body: "{", code: 400},
		"an Event":              {body: valid, code: 400},
		"a list":                {body: "[" + valid + "]", code: 400},
		"another case":          {body: strings.Replace(listOf("v1", valid), "items", "Items", 1), code: 400},
		"an unknown member":     {body: strings.Replace(listOf("v1", valid), "{", `{"x":0,`, 1), code: 400},
		"a long member":         {body: strings.Replace(listOf("v1", valid), "{", `{"`+strings.Repeat("x", 1<<19)+`":0,`, 1), code: 400},
		"two kinds":             {body: strings.Replace(listOf("v1", valid), "{", `{"kind":"EventList",`, 1), code: 400},
		"no items":              {body: `{"kind":"EventList","apiVersion":"v1"}`, code: 400},
		"a long text":           {body: `"` + strings.Repeat("x", 1<<19) + `"`, code: 400},
		"another kind":          {body: strings.Replace(listOf("v1", valid), "EventList", "PodList", 1), code: 400},
		"a long kind":           {body: strings.Replace(listOf("v1", valid), "EventList", strings.Repeat("x", 1<<19), 1), code: 400},
		"a long API":            {body: listOf(strings.Repeat("x", 1<<19), valid), code: 400},
		"another API":           {path: newBatch, body: listOf("v1", valid), code: 400},
		"two lists":             {body: strings.Replace(listOf("v1", valid), "{", `{"items":[],`, 1), code: 400},
		"more after it":         {body: listOf("v1", valid) + "{}", code: 400},
		"cut":                   {body: listOf("v1", valid)[:200], code: 400},
		"too many":              {body: tooMany, code: 413},
		"too large":             {body: listOf("v1", `{"x":"`+strings.Repeat("x", 1<<20)+`"}`), code: 413},
		"protobuf without mark": {body: "x", contentType: runtime.ContentTypeProtobuf, code: 400},
		"too many in protobuf":  {body: string(inProtobuf(t, "v1", manyEvents(batch.MaxItems+1))), contentType: runtime.ContentTypeProtobuf, code: 413},
		"broken protobuf":       {body: "k8s\x00\xff\xff", contentType: runtime.ContentTypeProtobuf, code: 400},
		"YAML":                  {body: listOf("v1", valid), contentType: runtime.ContentTypeYAML, code: 415},
		"a wrong validation":    {path: coreBatch + "&fieldValidation=strict", body: listOf("v1", valid), code: 422},
		"dry run":               {path: coreBatch + "&dryRun=All", body: listOf("v1", valid), code: 400},
		"not asked for":         {path: coreEvents, body: listOf("v1", valid), code: 400},
	} {
		t.Run(name, func(t *testing.T) {
			s := serve(t, written())
			if test.path == "" {
				test.path = coreBatch
			}
			if test.contentType == "" {
				test.contentType = runtime.ContentTypeJSON
			}
			a := s.Do(t, http.MethodPost, test.path, test.body, "Content-Type", test.contentType)
			if a.Code != test.code || a.Status(t).Message == "" || len(a.Body) > 1<<10 {
				t.Errorf("%d, want %d: %.1000s", a.Code, test.code, a.Body)
			}
			s.Pipeline.WantRecorded(t, 0)
		})
	}
	s := serve(t, written(), authorized(func(authorizer.Attributes) (authorizer.Decision, string, error) {
		return authorizer.DecisionDeny, "", nil
	}))
	s.Do(t, http.MethodPost, coreBatch, listOf("v1", valid)).Want(t, 403, metav1.StatusReasonForbidden)
}

// An Event whose name is pending with other contents is refused for now: it delays no other one
// of its batch.
func TestBatchWaitsForNoName(t *testing.T) {
	p, ok := written(), written().Settle
	p.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
		if o.Client == "busy" {
			return occurrence.Settlement{}, false
		}
		return ok(o)
	}
	s := serve(t, p)
	busy, o := s.posting(t, "busy", 5)
	other := classic("busy", 3)
	other.Message = "another one"
	list := &corev1.EventList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "EventList"}, Items: []corev1.Event{*other, *classic("free", 1)}}
	equal(t, "codes", codes(s.batch(t, coreBatch, list, 2)), []int32{429, 201})
	// The same contents join.
	list.Items[0] = *classic("busy", 5)
	list.Items[1].Name = "free-2"
	again := background(func() answer { return s.Do(t, http.MethodPost, coreBatch, list) })
	until(t, "the other one is recorded", func() bool { return len(s.Pipeline.Occurrences()) == 3 })
	o.Settled(stored(occurrence.Created, 7))
	(<-busy).Want(t, 201, "")
	equal(t, "codes", codes(statuses(t, <-again, 2)), []int32{201, 201})
}

// Batches that wait for their outcome take no place of another tenant, nor of single requests.
func TestBatchesOfATenantTakeNoPlaceOfAnother(t *testing.T) {
	p, ok := written(), written().Settle
	p.Recorded = make(chan *occurrence.Occurrence, 1<<20)
	p.Settle = func(o *occurrence.Occurrence) (occurrence.Settlement, bool) {
		if o.User == "noisy" {
			return occurrence.Settlement{}, false
		}
		return ok(o)
	}
	name := "noisy"
	s := serve(t, p, withServer(func(o *intake.ServerOptions) { o.Authenticator = byToken }), inFlight(10_000))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waiting []<-chan answer
	refused := 0
	for turn := 0; refused == 0 && turn < 100; turn++ {
		list := manyEvents(batch.MaxItems)
		for i := range list.Items {
			list.Items[i].Name += fmt.Sprint("-", turn)
		}
		before := len(p.Occurrences())
		answered := background(func() answer {
			return s.DoUntil(ctx, t, http.MethodPost, coreBatch, list, "Authorization", "Bearer "+name)
		})
		until(t, "the batch is recorded or refused", func() bool {
			return len(answered) > 0 || len(p.Occurrences()) == before+batch.MaxItems
		})
		if len(answered) > 0 {
			(<-answered).Want(t, 429, metav1.StatusReasonTooManyRequests)
			s.WantMetric(t, 1, "eventd_intake_refused_total", "batched")
			refused++
			continue
		}
		waiting = append(waiting, answered)
	}
	if n := len(p.Occurrences()); refused == 0 || n > 4<<10 {
		t.Errorf("%d Events of one tenant are in flight, %d batches refused", n, refused)
	}
	s.Do(t, http.MethodPost, coreEvents, classic("single", 1), "Authorization", "Bearer quiet").Want(t, 201, "")
	for _, status := range s.batch(t, coreBatch, manyEvents(batch.MaxItems), batch.MaxItems, "Authorization", "Bearer quiet") {
		if status.Code != 201 && status.Code != 429 { // names of the other's are pending
			t.Fatalf("%+v", status)
		}
	}
	cancel()
	for _, answered := range waiting {
		<-answered
	}
}

// The answer to a batch is never too large to be sent.
func TestErrorsOfABatchAreBounded(t *testing.T) {
	s := serve(t, written())
	item := fmt.Sprintf(`{"metadata":{"name":"%s"},"eventTime":"2026-01-02T03:04:05.000006Z","reportingController":"%s"}`, strings.Repeat("!", 250), strings.Repeat("!", 600))
	a := s.Do(t, http.MethodPost, newBatch, listOf("events.k8s.io/v1", strings.Repeat(item+",", 999)+item))
	for i, status := range statuses(t, a, 1000) {
		if status.Code != 422 || status.Reason != metav1.StatusReasonInvalid {
			t.Fatalf("%d: %+v", i, status)
		}
	}
	if len(a.Body) > 1<<20 {
		t.Errorf("the answer has %d bytes", len(a.Body))
	}
}

// FuzzBatch sends anything as a batch. Its Events are answered as if each were alone.
func FuzzBatch(f *testing.F) {
	valid := string(must(json.Marshal(classic("valid", 1))))
	for _, body := range []string{"", "{}", listOf("v1"), listOf("v1", valid, "{}"), listOf("v1", valid, valid), listOf("v1", "null", "[]"), `{"items":[{}]}`} {
		f.Add(false, []byte(body))
	}
	f.Add(true, inProtobuf(f, "v1", manyEvents(2)))
	f.Add(true, []byte("k8s\x00"))
	f.Fuzz(func(t *testing.T, protobuf bool, body []byte) {
		contentType := runtime.ContentTypeJSON
		if protobuf {
			contentType = runtime.ContentTypeProtobuf
		}
		together, alone := serve(t, written()), serve(t, written())
		a := together.Do(t, http.MethodPost, coreBatch, body, "Content-Type", contentType)
		if a.Code != http.StatusOK {
			if a.Code >= 500 || a.Status(t).Message == "" {
				t.Errorf("%d: %s", a.Code, a.Body)
			}
			together.Pipeline.WantRecorded(t, 0)
			return
		}
		if protobuf {
			return
		}
		var list struct{ Items []json.RawMessage }
		if err := json.Unmarshal(body, &list); err != nil {
			return // names that differ by case
		}
		for i, status := range statuses(t, a, len(list.Items)) {
			single := alone.Do(t, http.MethodPost, coreEvents, []byte(list.Items[i]), "Content-Type", contentType)
			if single.Code != int(status.Code) && !strings.Contains(status.Message, "must have a name") {
				t.Errorf("%s: %d in a batch, %d alone: %s, %s", list.Items[i], status.Code, single.Code, status.Message, single.Body)
			}
		}
	})
}

// byToken authenticates a request as the user that is its token.
var byToken = authenticator.RequestFunc(func(req *http.Request) (*authenticator.Response, bool, error) {
	name := strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")
	return &authenticator.Response{User: &user.DefaultInfo{Name: name}}, true, nil
})
