package e2e

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// kubectl shows Events that went through eventd as it shows those that the same
// recorders wrote to the kube-apiserver themselves.
func TestKubectlShowsTheseEventsLikeAnyOther(t *testing.T) {
	shared := testenv.Shared(t)
	e := startEventd(t)
	config, through := e.newReporter()
	report(t, config, through)
	direct := shared.Namespace(t)
	report(t, replica.Reporter(t, shared, direct), direct)
	isStored := func(namespace string) bool {
		events := stored.ByObject(t, shared, namespace)["web-0"]
		return len(events) == 3 && stored.Tally(events, func(*corev1.Event) string { return "all" }).Sum() == 3+1+2
	}
	await.Until(t, "the Events", func() bool { return isStored(through) && isStored(direct) })
	for _, arguments := range []string{
		"get events --sort-by=.reason",
		"get events -o wide --no-headers --sort-by=.reason",
		"describe pod web-0",
		"events",
		"events --for pod/web-0 --types=Warning",
	} {
		got, want := kubectl(t, through, arguments), kubectl(t, direct, arguments)
		if got != want {
			t.Errorf("kubectl %s shows\n%s\nfor Events through eventd, and\n%s\nfor others", arguments, got, want)
		}
		for _, shown := range []string{"BackOff", "back-off restarting", "Warning"} {
			if !strings.Contains(got, shown) {
				t.Errorf("kubectl %s does not show %q:\n%s", arguments, shown, got)
			}
		}
	}
	e.wantWritten(3 + 1 + 2)
	e.Terminate(t)
}

// report lets unmodified recorders of both kinds report on a Pod.
func report(t *testing.T, config *rest.Config, namespace string) {
	t.Helper()
	web := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "web-0"},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
	}
	web, err := clientset(t, testenv.Shared(t).Config()).CoreV1().Pods(namespace).Create(t.Context(), web, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	recorder := classicRecorder(t, config)
	for range 3 {
		recorder.Event(web, "Warning", "BackOff", "back-off restarting failed container")
	}
	recorder.Event(web, "Normal", "Pulled", "image pulled")

	newStyle := newStyleRecorder(t, config)
	for range 2 {
		newStyle.Eventf(web, nil, "Normal", "Scheduled", "Binding", "assigned to node-1")
	}
}

// kubectl runs it and returns what it shows, without what differs between any
// two runs: times, the width that they take, and generated names.
func kubectl(t *testing.T, namespace, arguments string) string {
	t.Helper()
	out, err := testenv.Shared(t).Kubectl(t.Context(), append(strings.Fields(arguments), "--namespace="+namespace)...)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.ReplaceAll(string(out), namespace, "NAMESPACE")
	for _, r := range []struct{ pattern, replacement string }{
		{`\b\d+(ms|s|m|h)\b`, "AGE"},
		{`\bweb-0\.[0-9a-f]+\b`, "NAME"},
		{`[A-Z][a-z]{2}, \d\d [A-Z][a-z]{2} \d{4} [0-9:]+ [+0-9A-Z]+`, "DATE"},
		{`[ -]{2,}`, "  "},
	} {
		shown = regexp.MustCompile(r.pattern).ReplaceAllString(shown, r.replacement)
	}
	lines := strings.Split(strings.TrimSpace(shown), "\n")
	slices.Sort(lines) // within a second their order is that of their names
	return strings.Join(lines, "\n")
}
