package rules

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
