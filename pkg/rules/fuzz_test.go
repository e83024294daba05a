package rules

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

// What an operator writes is accepted or refused, and what is accepted can be used.
func FuzzLoadAndCompile(f *testing.F) {
	const head = "apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n"
	f.Add([]byte(head + "receivers: [{name: a, jsonLines: {}}]\nroutes: [{name: b, match: 'event.count > 1', receivers: [a]}]\n"))
	f.Add([]byte(head + "routes: [{name: b, match: 'event.message.matches(\"(a+)+$\") && [1].exists(x, x == 1)'}]\n"))
	f.Add([]byte(head + "intake: [{name: a, match: 'event.reason == \"BackOff\"', dryRun: true, drop: true}, {name: b, match: 'true', budget: {burst: 1, qps: 1/300}}]\n"))
	f.Add([]byte(head + "receivers: [{name: a, jsonLines: {}}]\nroutes: [{name: b, receivers: [a], throttle: {interval: 5m, by: [reason, 'metadata.labels[\"a\"]']}}]\n"))
	f.Add([]byte(head + "metrics: [{name: b, match: 'event.count > 1', labels: {a: metadata.namespace, b: 'metadata.annotations[\"a\"]'}, maxSeries: 5}]\n"))
	f.Add([]byte(head + "a: &a [1]\nb: [*a, *a]\n"))
	f.Add([]byte(`{"apiVersion":"config.eventd.io/v1alpha1","kind":"EventdConfiguration","routes":[{"name":"a","match":"true"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		config, err := v1alpha1.Load(data)
		if err != nil {
			return
		}
		set, err := Compile(config)
		if err != nil {
			return
		}
		event := &corev1.Event{Reason: "BackOff"}
		wantConsistent(t, set, event)
		wantIntakeConsistent(t, set, event)
		for _, m := range set.Metrics() {
			if len(m.LabelValues(event)) != len(m.LabelNames()) {
				t.Errorf("%v has the values %q", m.Definition(), m.LabelValues(event))
			}
			m.Match(event)
		}
		for i := range config.Receivers {
			for j := range config.Routes {
				if throttle := set.For(config.Receivers[i].Name).Throttle(config.Routes[j].Name); throttle != nil {
					throttle.Group(event)
				}
			}
		}
	})
}

// Whatever an Event has in it, its evaluation ends, Deliver is what Route says, and it has one group.
func FuzzRoute(f *testing.F) {
	set := compileAll(f, expressions)
	intake := compileIntakeAll(f, expressions)
	f.Add("web.1", "BackOff", "Back-off restarting failed container", "kubernetes.io/a", "b", int32(3), int64(1700000000))
	f.Add("\xff", "\x00", "\xed\xa0\x80", "", "\xff", int32(-1), int64(-1<<63))
	f.Add("", "", "", "", "", int32(0), int64(1<<63-1))
	f.Fuzz(func(t *testing.T, name, reason, message, key, value string, count int32, seconds int64) {
		at := metav1.Unix(seconds, 0)
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Labels: map[string]string{key: value}, Annotations: map[string]string{value: message, key: ""}, CreationTimestamp: at},
			InvolvedObject: corev1.ObjectReference{Kind: reason, Name: name, FieldPath: message},
			Related:        &corev1.ObjectReference{Name: value},
			Reason:         reason, Message: message, Type: value, Count: count,
			LastTimestamp: at, EventTime: metav1.NewMicroTime(at.Time),
			Series: &corev1.EventSeries{Count: count, LastObservedTime: metav1.NewMicroTime(at.Time)},
		}
		wantConsistent(t, set, event)
		wantIntakeConsistent(t, intake, event)
		throttle := throttleBy(append(v1alpha1.StringFields(), `metadata.labels["a"]`)...)
		if throttle.Group(event) != throttle.Group(event.DeepCopy()) {
			t.Error("an Event has two groups")
		}
	})
}

// compileIntakeAll compiles each expression as an intake rule. All but the last are dry runs.
func compileIntakeAll(t testing.TB, expressions []string) *Set {
	t.Helper()
	config := new(v1alpha1.EventdConfiguration)
	for i, expression := range expressions {
		config.Intake = append(config.Intake, v1alpha1.IntakeRule{
			Name: fmt.Sprint("r", i), Match: expression, Drop: true, DryRun: i < len(expressions)-1,
		})
	}
	return mustCompile(t, config)
}
