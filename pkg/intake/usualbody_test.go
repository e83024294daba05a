package intake_test

import (
	"bytes"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
)

// complete is an Event with all that the fast path reads or writes, each with a value of its own.
func complete() *corev1.Event {
	reference := func(of string) corev1.ObjectReference {
		return corev1.ObjectReference{
			Kind: of + "Kind", Namespace: of + "-namespace", Name: of + "-name", UID: types.UID(of + "-uid"),
			APIVersion: of + "/v1", ResourceVersion: of + "-version", FieldPath: of + ".path",
		}
	}
	at := func(second int) time.Time { return time.Date(2026, 11, 23, 10, 0, second, 123_456_000, time.UTC) }
	related := reference("related")
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "b", Namespace: "ns"},
		InvolvedObject: reference("involved"), Related: &related,
		Reason: "a reason", Message: "a message\twith\rall\n\b\f\"\\ and \u20ac, \ufffd", Type: corev1.EventTypeWarning, Action: "an action",
		Source:              corev1.EventSource{Component: "a component", Host: "a host"},
		FirstTimestamp:      metav1.NewTime(at(1).Truncate(time.Second)),
		LastTimestamp:       metav1.NewTime(at(2).Truncate(time.Second)),
		EventTime:           metav1.NewMicroTime(at(3)),
		Count:               4,
		Series:              &corev1.EventSeries{Count: 5, LastObservedTime: metav1.NewMicroTime(at(6))},
		ReportingController: "a controller", ReportingInstance: "an instance",
	}
}

// unusualBodies are bodies that only look usual.
func unusualBodies() []string {
	usual := string(encode(classic("b", 1), occurrence.CoreV1, jsonType))
	change := func(old, with string) string { return strings.Replace(usual, old, with, 1) }
	return []string{
		"\xef\xbb\xbf" + usual, usual + "x", usual + usual, usual[:len(usual)-3], "", "null", "[]", `{}`,
		change(`"reason":`, `"reason":"other","reason":`), change(`"reason"`, `"Reason"`), change(`"reason"`, `"r\u0065ason"`),
		change(`"kind":"Event"`, `"kind":"Event","KIND":"Pod"`), change(`"kind":"Event",`, ``), change(`"v1"`, `"v2"`),
		change(`"count":1`, `"count":1.0`), change(`"count":1`, `"count":1e3`), change(`"count":1`, `"count":01`), change(`"count":1`, `"count":-1`),
		change(`"count":1`, `"count":99999999999999999999`), change(`"count":1`, `"count":"1"`), change(`"count":1`, `"count":null`),
		change(`"count":1`, `"count":2147483648`), change(`"count":1`, `"count":-0`),
		change(`Started`, "\xff"), change(`Started`, `\ud800`), change(`Started`, `\ud83d\ude00`), change(`Started`, `\u0000`), change(`Started`, "a\tb"),
		change(`Started`, `\x`), change(`Started`, `\/\b\f`), change(`"involvedObject":{`, `"involvedObject":{"nonsense":`+strings.Repeat("[", 40)+strings.Repeat("]", 40)+`,`),
		change(`"metadata":{`, `"metadata":{"generateName":"x-",`), change(`"metadata":{`, `"metadata":{"labels":{"a":"b"},`),
		change(`"metadata":{`, `"metadata":{"finalizers":["a"],`), change(`"metadata":{`, `"metadata":{"ownerReferences":[{},{}],`),
		change(`"metadata":{`, `"metadata":{"resourceVersion":"5",`), change(`"metadata":{`, `"metadata":{"uid":"x",`),
		change(`"namespace":"ns"`, `"namespace":"other"`), change(`"name":"b"`, `"name":""`), change(`"name":"b"`, `"name":"a/b"`),
		change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:20.5Z"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:20+01:00"`),
		change(`"2023-11-14T22:13:20Z"`, `"2023-02-30T22:13:20Z"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:60Z"`), change(`"2023-11-14T22:13:20Z"`, `""`),
		change(`"eventTime":null`, `"eventTime":"2023-11-14T22:13:20Z"`), change(`"eventTime":null`, `"eventTime":"2023-11-14T22:13:20.000001Z"`),
		change(`"eventTime":null`, `"series":{},"eventTime":null`), change(`"eventTime":null`, `"series":null,"eventTime":null`), change(`"eventTime":null`, `"related":{},"eventTime":null`),
		strings.ReplaceAll(usual, ",", " ,\n\t"), strings.ReplaceAll(usual, ",", "\v,"), strings.ReplaceAll(usual, ",", "\f,"),
		change(`"kind":"Event"`, `"kind":"Pod"`), change(`"kind":"Event"`, `"kind":"Event","kind":"Event"`), change(`"apiVersion":"v1",`, ``),
		change(`"apiVersion":"v1"`, `"apiVersion":"v1","apiVersion":"v1"`),
		change(`"name":"b"`, `"name":"b","name":"c"`), change(`"namespace":"ns"`, `"namespace":"ns","namespace":"ns"`),
		change(`"metadata":{`, `"metadata":{"creationTimestamp":null,"creationTimestamp":null,`),
		change(`"involvedObject":{`, `"involvedObject":{"kind":"A","kind":"B",`), change(`"involvedObject":{`, `"involvedObject":{"fieldPath":"a","fieldPath":"b",`),
		change(`"involvedObject":{`, `"involvedObject":{"uid":"a","uid":"b",`), change(`"involvedObject":{`, `"involvedObject":{"fieldPath":"a",`),
		change(`"source":{`, `"source":{"host":"a","host":"b",`), change(`"source":{`, `"source":{"component":"a","component":"b",`),
		change(`"eventTime":null`, `"series":{"count":1,"count":2},"eventTime":null`),
		change(`"eventTime":null`, `"series":{"lastObservedTime":"2023-11-14T22:13:20.000001Z","lastObservedTime":null},"eventTime":null`),
		change(`"reason":`, `"note":"a","reason":`), change(`"count":1`, `"count":`), change(`"count":1`, `"count":1234567890`), change(`"count":1`, `"count":999999999`),
		change(`}`, `,}`), change(`"count":1`, `"count":1,`), change(`"metadata":{`, `"series":{"count":,"metadata":{`),
		change(`Started`, "a\x1fb"), change(`Started`, "a\x1eb"), change(`Started`, `\ud7ff`), change(`Started`, `\udfff`), change(`Started`, `\ue000`),
		change(`Started`, `\'`), change(`Started`, `\u00G0`), change(`Started`, `\u00g0`), change(`Started`, `\u00fF`), change(`Started`, `\u12`), change(`Started`, `ns`), change(`Started`, `n2`),
		usual[:strings.Index(usual, `Started`)] + `\u`, usual[:strings.Index(usual, `Started`)] + `\`,
		change(`"eventTime":null`, `"eventTime":"2023-11-14T22:13:20.0+01:00"`),
		change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:20z"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:200"`), change(`"2023-11-14T22:13:20Z"`, `"2023-11-14T22:13:2\u0030Z"`),
	}
}

// FuzzUsualBody decodes any body. What the fast path decodes, the apiserver's strict decoder decodes alike, without
// an error or a warning.
func FuzzUsualBody(f *testing.F) {
	for _, body := range unusualBodies() {
		f.Add(false, false, []byte(body))
		f.Add(true, false, []byte(body))
	}
	for _, r := range usualRequests() {
		f.Add(apiOfPath(r.path) == occurrence.EventsV1, r.contentType == protoType, r.body)
	}
	for _, mediaType := range []string{jsonType, protoType} {
		f.Add(false, mediaType == protoType, encode(complete(), occurrence.CoreV1, mediaType))
		f.Add(true, mediaType == protoType, encode(complete(), occurrence.EventsV1, mediaType))
	}
	for old, other := range map[string]string{"Event": "Other", "v1": "v2"} {
		body := encode(complete(), occurrence.CoreV1, protoType)
		f.Add(false, true, bytes.Replace(body, []byte(old), []byte(other), 1))
		f.Add(true, true, bytes.Replace(body, []byte(old), []byte(other), 1))
		f.Add(true, true, bytes.Replace(encode(complete(), occurrence.EventsV1, protoType), []byte(old), []byte(other), 1))
	}
	f.Add(true, true, encode(complete(), occurrence.CoreV1, protoType))
	f.Add(false, true, encode(complete(), occurrence.EventsV1, protoType))
	for newAPI, version := range map[bool]string{false: "v1", true: "events.k8s.io/v1"} { // the Event in it ends too soon
		wrapped := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: "Event"}, Raw: []byte{0x0a, 0x05}}
		f.Add(newAPI, true, append([]byte("k8s\x00"), must(wrapped.Marshal())...))
	}
	f.Add(false, false, []byte(strings.Replace(string(encode(complete(), occurrence.CoreV1, jsonType)), "a reason", `\u20ac \t\r`, 1)))
	f.Fuzz(func(t *testing.T, newAPI, inProtobuf bool, body []byte) {
		api, mediaType := occurrence.CoreV1, jsonType
		if newAPI {
			api = occurrence.EventsV1
		}
		if inProtobuf {
			mediaType = protoType
		}
		got := intake.UsualEvent(api, mediaType, body)
		if got == nil {
			return
		}
		want, err := intake.GenericEvent(api, mediaType, bytes.Clone(body))
		if err != nil {
			t.Fatalf("%q is decoded, and not by the apiserver: %v", body, err)
		}
		clear(body) // nothing of it is kept
		got.TypeMeta, want.TypeMeta = metav1.TypeMeta{}, metav1.TypeMeta{}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("decoded (-apiserver +fast path):\n%s", diff)
		}
	})
}

// A body that ends anywhere is not usual. Nothing behind its end is read, whether there is memory or not.
func TestBodyThatEndsTooSoonIsNotUsual(t *testing.T) {
	bodies := []string{`{"message":"\u"}`, `{"message":"\u1"}`, `{"message":"\u12"}`, `{"message":"\u123"}`}
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		for _, event := range []*corev1.Event{complete(), classic("b", 1)} {
			bodies = append(bodies, strings.TrimSpace(string(encode(event, api, jsonType))))
		}
		for _, body := range bodies {
			whole := []byte(body)
			for end := range whole {
				for _, cut := range [][]byte{whole[:end], whole[:end:end]} {
					if intake.UsualEvent(api, jsonType, cut) != nil {
						t.Errorf("%q is usual", cut)
					}
				}
			}
		}
	}
}

// Whatever a client has set of an Event takes the fast path in both APIs, also with the null that older releases send.
// A field that is there twice does not: the apiserver warns of it.
func TestCompleteBodyIsUsualWithEachFieldOnce(t *testing.T) {
	field := regexp.MustCompile(`"\w+":("(?:[^"\\]|\\.)*"|\d+)`)
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		body := string(encode(complete(), api, jsonType))
		for _, meta := range []string{`"metadata":{`, `"metadata":{"creationTimestamp":null,`} {
			if usual := strings.Replace(body, `"metadata":{`, meta, 1); intake.UsualEvent(api, jsonType, []byte(usual)) == nil {
				t.Errorf("%s takes the generic path", usual)
			}
		}
		later := strings.Replace(body, `"namespace":"ns"`, `"namespace":"ns","creationTimestamp":null`, 1)
		if intake.UsualEvent(api, jsonType, []byte(later)) == nil {
			t.Errorf("%s takes the generic path", later)
		}
		fields := field.FindAllStringIndex(body, -1)
		if len(fields) < 30 {
			t.Errorf("%d fields are found in %s", len(fields), body)
		}
		for _, at := range fields {
			twice := body[:at[1]] + "," + body[at[0]:]
			if intake.UsualEvent(api, jsonType, []byte(twice)) != nil {
				t.Errorf("%s is there twice, and usual", body[at[0]:at[1]])
			}
		}
	}
}

// manyLabels are more than an Event may have.
func manyLabels() map[string]string {
	labels := map[string]string{}
	for i := range 65 {
		labels[fmt.Sprint("a", i)] = ""
	}
	return labels
}

// Events in protobuf may have what client-go sends in no report. They are answered and patched on both paths alike.
func TestUnusualEventsAreAnsweredAlike(t *testing.T) {
	for name, change := range map[string]func(*corev1.Event){
		"nothing":         func(*corev1.Event) {},
		"labels":          func(e *corev1.Event) { e.Labels = map[string]string{"a": "b"} },
		"too many labels": func(e *corev1.Event) { e.Labels = manyLabels() },
		"annotations":     func(e *corev1.Event) { e.Annotations = map[string]string{"a": "b"} },
		"an owner": func(e *corev1.Event) {
			e.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "b"}}
		},
		"an owner twice": func(e *corev1.Event) {
			owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "a", UID: "b"}
			e.OwnerReferences = []metav1.OwnerReference{owner, owner}
		},
		"finalizers":             func(e *corev1.Event) { e.Finalizers = []string{"a/b", "a/b"} },
		"managed fields":         func(e *corev1.Event) { e.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "a"}} },
		"system fields":          func(e *corev1.Event) { e.UID, e.CreationTimestamp = "mine", metav1.Unix(1, 0) },
		"a deletion":             func(e *corev1.Event) { e.DeletionTimestamp = new(metav1.Unix(1, 0)) },
		"a grace period":         func(e *corev1.Event) { e.DeletionGracePeriodSeconds = new(int64(1)) },
		"a self link":            func(e *corev1.Event) { e.SetSelfLink("/a") },
		"a generation":           func(e *corev1.Event) { e.Generation = 5 },
		"a version":              func(e *corev1.Event) { e.ResourceVersion = "abc" },
		"a year of 5 digits":     func(e *corev1.Event) { e.FirstTimestamp = metav1.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"a last one of 5 digits": func(e *corev1.Event) { e.LastTimestamp = metav1.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"a year of 5 digits, new style": func(e *corev1.Event) {
			e.EventTime = metav1.NewMicroTime(time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC))
			e.ReportingController, e.ReportingInstance, e.Action = "example.com/a", "a-1", "Starting"
			e.FirstTimestamp, e.LastTimestamp, e.Count, e.Source = metav1.Time{}, metav1.Time{}, 0, corev1.EventSource{}
		},
		"a series": func(e *corev1.Event) {
			e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(time.Unix(1_700_000_000, 1234))}
		},
	} {
		for ends, pipeline := range map[string]func() *fakePipeline{
			"written": written, "deferred": func() *fakePipeline { p := written(); p.Deferring = true; return p },
		} {
			t.Run(name+", "+ends, func(t *testing.T) {
				p := bothPaths(t, pipeline)
				event := classic("a", 1)
				change(event)
				p.compare(t, usualRequest{method: http.MethodPost, path: coreEvents, contentType: protoType, body: encode(event, occurrence.CoreV1, protoType)})
				for _, patch := range []string{
					`{"series":{"lastObservedTime":"2026-11-23T10:00:00.123456Z"}}`, `{"series":{"count":3}}`,
					`{"count":1}`, `{"count":2,"lastTimestamp":"2026-11-23T10:00:00Z"}`, `{"count":2}`,
				} {
					p.compare(t, usualRequest{method: http.MethodPatch, path: coreEvents + "/a", contentType: strategicType, body: []byte(patch)})
				}
			})
		}
	}
}

// FuzzUsualAnswer encodes any Event. The fast path writes the same bytes as the apiserver's encoder.
func FuzzUsualAnswer(f *testing.F) {
	for _, change := range []func(*metav1.ObjectMeta){
		func(m *metav1.ObjectMeta) { m.GenerateName = "a-" },
		func(m *metav1.ObjectMeta) { m.CreationTimestamp = metav1.Unix(1_700_000_000, 0) },
		func(m *metav1.ObjectMeta) { m.SetSelfLink("/a") },
		func(m *metav1.ObjectMeta) { m.Generation = 1 },
		func(m *metav1.ObjectMeta) { m.DeletionTimestamp = new(metav1.Unix(1_700_000_000, 0)) },
		func(m *metav1.ObjectMeta) { m.DeletionGracePeriodSeconds = new(int64(1)) },
		func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"a": "b"} },
		func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{"a": "b"} },
		func(m *metav1.ObjectMeta) { m.OwnerReferences = make([]metav1.OwnerReference, 1) },
		func(m *metav1.ObjectMeta) { m.Finalizers = []string{"a"} },
		func(m *metav1.ObjectMeta) { m.ManagedFields = make([]metav1.ManagedFieldsEntry, 1) },
	} {
		event := complete()
		change(&event.ObjectMeta)
		f.Add(must(event.Marshal()))
	}
	for _, event := range []*corev1.Event{classic("a", 1), newStyle("a"), complete(), {}} {
		f.Add(must(event.Marshal()))
		event.Message = "\x00\x1f\x7f\"\\/<>&\b\f\n\r\t\u2028\u2029\uffff\xff\xc0ü😀"
		event.Related, event.Series = &corev1.ObjectReference{Name: "<"}, &corev1.EventSeries{Count: -1}
		f.Add(must(event.Marshal()))
		event.Series.Count = 0
		f.Add(must(event.Marshal()))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		event := &corev1.Event{}
		if event.Unmarshal(data) != nil {
			return
		}
		for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
			for _, mediaType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeProtobuf} {
				got := intake.UsualAnswer(event, api, mediaType)
				want, err := intake.GenericAnswer(event, api, mediaType)
				if got != nil && (err != nil || !bytes.Equal(got, want)) {
					t.Errorf("%v, %s:\n%q, not\n%q, %v", api, mediaType, got, want, err)
				}
			}
		}
	})
}

// Times are answered in UTC, wherever the process runs.
func TestAnswersAreInUTC(t *testing.T) {
	east := time.FixedZone("east", 3600)
	event := complete()
	event.FirstTimestamp, event.EventTime = metav1.NewTime(event.FirstTimestamp.In(east)), metav1.NewMicroTime(event.EventTime.In(east))
	for _, api := range []occurrence.API{occurrence.CoreV1, occurrence.EventsV1} {
		equal(t, "answer", string(intake.UsualAnswer(event, api, jsonType)), string(encode(event, api, jsonType)))
	}
}
