package receivertest

import (
	"fmt"
	"math"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/receiver"
)

// Time is the last time of the first record.
var Time = time.Date(2026, 11, 23, 7, 0, 0, 0, time.UTC)

// Record returns a record that has a value in all usual fields.
func Record(i int) receiver.Record {
	at := metav1.NewTime(Time.Add(time.Duration(i) * time.Second))
	uid := fmt.Sprintf("5cd6a7b4-0000-4000-8000-%012d", i)
	return receiver.Record{
		ID:       fmt.Sprintf("%s/%d", uid, 1000+i),
		Cluster:  "production",
		Observed: at.Add(20 * time.Millisecond),
		Event: &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{
				Name: fmt.Sprintf("web-%d.17f0a2b3c4d5e6f7", i), Namespace: "shop", UID: types.UID(uid),
				ResourceVersion: fmt.Sprint(1000 + i), CreationTimestamp: metav1.NewTime(at.Add(-time.Minute)),
			},
			InvolvedObject: corev1.ObjectReference{
				Kind: "Pod", Namespace: "shop", Name: fmt.Sprintf("web-%d", i), UID: "object-uid", APIVersion: "v1",
				ResourceVersion: "77", FieldPath: "spec.containers{web}",
			},
			Reason:              "BackOff",
			Message:             "Back-off restarting failed container web in pod web-0_shop(5cd6a7b4) <ü>",
			Source:              corev1.EventSource{Component: "kubelet", Host: "node-1"},
			FirstTimestamp:      metav1.NewTime(at.Add(-time.Minute)),
			LastTimestamp:       at,
			Count:               int32(i + 3),
			Type:                corev1.EventTypeWarning,
			Action:              "Restarting",
			ReportingController: "kubelet",
			ReportingInstance:   "node-1",
		},
	}
}

// Records returns n records.
func Records(n int) []receiver.Record {
	records := make([]receiver.Record, n)
	for i := range records {
		records[i] = Record(i)
	}
	return records
}

// Hostile returns records of Events that a client may write and no client should, by what is
// wrong with them.
func Hostile() map[string]receiver.Record {
	hostile := map[string]receiver.Record{}
	add := func(what string, change func(e *corev1.Event)) {
		r := Record(0)
		change(r.Event)
		hostile[what] = r
	}
	const invalid = "a\xff\xc3(\x00\u2028</script>"
	add("nothing is set", func(e *corev1.Event) { *e = corev1.Event{} })
	add("invalid UTF-8 everywhere", func(e *corev1.Event) {
		e.Name, e.Namespace, e.UID, e.Reason, e.Message, e.Type, e.Action = invalid, invalid, invalid, invalid, invalid, invalid, invalid
		e.Source = corev1.EventSource{Component: invalid, Host: invalid}
		e.ReportingController, e.ReportingInstance = invalid, invalid
		e.InvolvedObject = corev1.ObjectReference{Kind: invalid, Namespace: invalid, Name: invalid, UID: invalid, APIVersion: invalid, ResourceVersion: invalid, FieldPath: invalid}
		e.Labels = map[string]string{invalid: invalid}
	})
	add("1 MiB message", func(e *corev1.Event) { e.Message = strings.Repeat("m", 1<<20) })
	add("1 MiB message of invalid UTF-8", func(e *corev1.Event) { e.Message = strings.Repeat("\xff\u0001", 1<<19) })
	add("10,000 labels", func(e *corev1.Event) {
		e.Labels = map[string]string{}
		for i := range 10_000 {
			e.Labels[fmt.Sprintf("label-%d", i)] = "value"
		}
	})
	add("large fields", func(e *corev1.Event) {
		large := strings.Repeat("ü", 100<<10)
		e.Reason, e.Action, e.InvolvedObject.Name, e.InvolvedObject.Kind, e.Source.Host = large, large, large, large, large
	})
	add("times that nothing can express", func(e *corev1.Event) {
		e.LastTimestamp = metav1.Unix(math.MaxInt64/2, 0)
		e.CreationTimestamp = metav1.Unix(math.MinInt64/2, 0)
		e.Series = &corev1.EventSeries{Count: math.MinInt32, LastObservedTime: metav1.NewMicroTime(time.Unix(math.MaxInt64/2, 0))}
	})
	return hostile
}
