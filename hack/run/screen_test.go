package main

import (
	"bytes"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

func event(name string, count int32) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: "web"},
		Type:           corev1.EventTypeNormal, Reason: "Started", Message: "started " + name,
		Count: count, LastTimestamp: metav1.Now(),
	}
}

func TestLinesShowEachChangeOnce(t *testing.T) {
	var out bytes.Buffer
	screen := newScreen(&out, "title") // not a terminal
	draw := func(events ...*corev1.Event) string {
		out.Reset()
		screen.draw(frame{elapsed: time.Second, counters: counters{recorded: 4, receivers: map[string]deliveries{archive: {observed: 2, delivered: 2}}}, events: events})
		return out.String()
	}
	first := draw(event("a", 1), event("b", 1))
	for _, want := range []string{"recorded 4 =", "archive:   observed 2 = delivered 2 + pending 0; lag 0s", "2 Events, counts add up to 2", "started a", "started b"} {
		if !strings.Contains(first, want) {
			t.Errorf("want %q in\n%s", want, first)
		}
	}
	second := draw(event("b", 2), event("a", 1))
	if strings.Contains(second, "started a") || !strings.Contains(second, "started b") {
		t.Errorf("want only the Event that changed in\n%s", second)
	}
}

func TestTerminalKeepsWithinItsSize(t *testing.T) {
	var out bytes.Buffer
	terminal := openTerminal(&out, "title") // of 80 by 24, as it cannot be asked
	out.Reset()
	events := make([]*corev1.Event, 100)
	for i := range events {
		events[i] = event(strings.Repeat("ü", 100), 1)
	}
	terminal.draw(frame{events: events})
	drawn := strings.Split(strings.TrimSuffix(strings.TrimPrefix(out.String(), home), clearBelow), clearToRight+"\r\n")
	if len(drawn) > 24 {
		t.Errorf("%d lines", len(drawn))
	}
	for _, line := range drawn {
		if n := len([]rune(line)); n > 80 {
			t.Errorf("%d columns: %q", n, line)
		}
	}
}

func TestCountsAddUp(t *testing.T) {
	classic, series := event("a", 3), event("b", 0)
	series.Series = &corev1.EventSeries{Count: 5}
	if got := total([]*corev1.Event{classic, series}); got != 3+5 {
		t.Errorf("counts add up to %d", got)
	}
}

func TestTitleSaysHowToLook(t *testing.T) {
	got := title(&cluster{config: &rest.Config{Host: "https://127.0.0.1:6443"}}, settings{}, "/tmp/kubeconfig")
	for _, want := range []string{
		"bin/kubectl-eventd page --kubeconfig=/tmp/kubeconfig --lease-namespace=eventd-demo\n",
		"bin/kubectl-eventd why deployment/web --kubeconfig=/tmp/kubeconfig --lease-namespace=eventd-demo --namespace=eventd-demo",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("want %q in\n%s", want, got)
		}
	}
}
