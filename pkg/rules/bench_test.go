package rules

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
)

func BenchmarkDeliver(b *testing.B) {
	usual := &corev1.Event{Type: "Warning", Message: "Back-off restarting failed container", ObjectMeta: metav1.ObjectMeta{Namespace: "prod-shop"}}
	long := &corev1.Event{Message: strings.Repeat("failed x", 200_000)}
	many := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{}}}
	for i := range 20_000 {
		many.Labels[fmt.Sprint("key-", i)] = "value"
	}
	for _, c := range []struct {
		name, expression string
		event            *corev1.Event
	}{
		{"typical", `event.type == "Warning" && event.metadata.namespace.startsWith("prod-")`, usual},
		{"regex", `event.message.matches("(?i)^(back-off|failed) .* (image|container|pod)")`, usual},
		{"regex of 1.6 MB", `event.message.matches("(?i)(.*back-off|.*failed) .* (image|container|pod)")`, long},
		{"20000 labels", `event.metadata.labels.exists(k, event.metadata.labels[k] == "none")`, many},
	} {
		filter := compileAll(b, []string{c.expression}).For("r0")
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				filter.Deliver(c.event)
			}
		})
	}
}

// The most that Events can cost which somebody posts to spend the time of eventd, with the most that
// rules may cost.
func BenchmarkDecide(b *testing.B) {
	message := strings.Repeat("failed x", maxVisible/8)
	for _, c := range []struct {
		name, expression string
		rules            int
		event            *corev1.Event
	}{
		{"one typical rule", `event.type == "Warning" && event.metadata.namespace.startsWith("prod-")`, 1, &corev1.Event{Type: "Normal"}},
		{"64 typical rules", `event.type == "Warning" && event.metadata.namespace.startsWith("prod-")`, 64, &corev1.Event{Type: "Normal"}},
		{"64 short regexes, usual", `event.message.matches("^(back-off|failed) .* (image|pod)$")`, 64, &corev1.Event{Message: "Readiness probe failed: connection refused"}},
		{"64 short regexes, hostile", `event.message.matches("^(back-off|failed) .* (image|pod)$")`, 64, &corev1.Event{Message: message}},
		{"10 long regexes, hostile", `event.message.matches("` + strings.Repeat("(a|.)*", 63) + `y$")`, 10, &corev1.Event{Message: message}},
		{"10 loops, hostile", `event.metadata.annotations.exists(k, event.metadata.annotations[k].contains("secret"))`, 3, annotated(64, message)},
	} {
		config := new(v1alpha1.EventdConfiguration)
		for i := range c.rules {
			config.Intake = append(config.Intake, drops(fmt.Sprint("r", i), c.expression))
		}
		i, _ := using(b, nil, config.Intake...)
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				i.Decide(c.event, 1, nil)
			}
		})
	}
}

func annotated(n int, value string) *corev1.Event {
	event := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{}}}
	for i := range n {
		event.Annotations[fmt.Sprint("key-", i)] = value
	}
	return event
}
