package intake_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/occurrence"
)

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

// manyLabels are more than an Event may have.
func manyLabels() map[string]string {
	labels := map[string]string{}
	for i := range 65 {
		labels[fmt.Sprint("a", i)] = ""
	}
	return labels
}

// Events in protobuf may have what client-go sends in no report. They are answered and patched by both handlers alike.
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
				p := bothHandlers(t, pipeline)
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
