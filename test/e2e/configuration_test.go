package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// startConfigured starts an eventd with a configuration and the rights to deliver, and waits until
// the beginning of a receiver is stored.
func startConfigured(t *testing.T, receiver, configuration string, flags ...string) *eventd {
	t.Helper()
	return startWithFile(t, filepath.Join(t.TempDir(), "configuration.yaml"), receiver, configuration, flags...)
}

// startWithFile is startConfigured with a file that the test may change.
func startWithFile(t *testing.T, file, receiver, configuration string, flags ...string) *eventd {
	t.Helper()
	c := testenv.Shared(t)
	replica.Deploy(t, c)
	replica.DeployObserve(t, c)
	configuration = "apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n" + configuration
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	e := startEventd(t, append(flags, "--config="+file)...)
	configMaps := kubernetes.NewForConfigOrDie(c.Config()).CoreV1().ConfigMaps(metav1.NamespaceSystem)
	await.Until(t, "the beginning of "+receiver+" to be stored", func() bool {
		cursors, err := configMaps.Get(t.Context(), "eventd-cursors", metav1.GetOptions{})
		return err == nil && cursors.Data[receiver] != ""
	})
	return e
}

// author stores Events without eventd.
type author struct {
	t      *testing.T
	events typedcorev1.EventInterface
}

func newAuthor(t *testing.T) (a author, namespace string) {
	t.Helper()
	c := testenv.Shared(t)
	namespace = c.Namespace(t)
	return author{t, kubernetes.NewForConfigOrDie(c.Config()).CoreV1().Events(namespace)}, namespace
}

func (a author) create(namespace, name, reason string, count int32) *corev1.Event {
	a.t.Helper()
	stored, err := a.events.Create(a.t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace, Name: name},
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: "web-0"},
		Reason:         reason, Message: "somebody has stored it", Type: corev1.EventTypeWarning, Count: count,
		LastTimestamp: metav1.Now(),
	}, metav1.CreateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return stored
}

// repeat stores another version.
func (a author) repeat(event *corev1.Event, count int32) *corev1.Event {
	a.t.Helper()
	event.Count = count
	stored, err := a.events.Update(a.t.Context(), event, metav1.UpdateOptions{})
	if err != nil {
		a.t.Fatal(err)
	}
	return stored
}

// Metrics of the configuration count what is stored, whoever wrote it. They need no receiver, and no
// name of the cluster.
func TestMetricsCountWhatIsStored(t *testing.T) {
	e := startConfigured(t, "_metrics", `
metrics:
- name: back_offs
  match: event.reason == "BackOff"
  labels: {namespace: metadata.namespace, object: involvedObject.name}
- name: stored
`)
	if stored, found := e.counters().Lookup("eventd_rule_stored_total"); !found {
		t.Errorf("a metric without labels is not there from the start: %v", stored)
	}
	a, namespace := newAuthor(t)
	backOffs := func() float64 {
		return e.counters().Sum("eventd_rule_back_offs_total", "namespace="+namespace, "object=web-0")
	}
	first := a.create(namespace, "first", "BackOff", 1)
	await.Until(t, "the first to be counted", func() bool { return backOffs() == 1 })
	a.repeat(first, 4)
	// An Event that was created since the counting began, by the clock of the apiserver.
	began := time.Now()
	await.Until(t, "an Event of a later second", func() bool {
		probe := a.create(namespace, "probe-"+time.Now().Format("150405.000000000"), "Probe", 1)
		return probe.CreationTimestamp.After(began)
	})
	a.create(namespace, "second", "BackOff", 5)
	await.Until(t, "all to be counted", func() bool { return backOffs() == 9 })
	await.Until(t, "the accounts", func() bool { // a version is acknowledged when it is counted
		c := e.counters()
		return c.Sum("eventd_receiver_delivered_versions_total", "receiver=_metrics") >= 4 &&
			c.Sum("eventd_metric_evaluations_total", "metric=back_offs", "result=match") >= 3
	})
	e.Terminate(t)
}

// line is what a receiver gets.
type line struct {
	ID         string
	Summarized int
}

func readLines(t *testing.T, file string) (lines []line) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil && !os.IsNotExist(err) {
		t.Fatal(err)
	}
	for row := range bytes.Lines(data) {
		var l line
		if json.Unmarshal(row, &l) == nil { // else it is being written
			lines = append(lines, l)
		}
	}
	return lines
}

// A throttled route delivers one version at once, and summaries that stand for all others, the last
// one of which is the latest version.
func TestAThrottledRouteDeliversSummaries(t *testing.T) {
	a, namespace := newAuthor(t)
	file := filepath.Join(t.TempDir(), "events.jsonl")
	e := startConfigured(t, "throttled", `
receivers:
- name: throttled
  jsonLines: {path: `+file+`}
routes:
- name: back-offs
  match: event.metadata.namespace == "`+namespace+`"
  receivers: [throttled]
  throttle: {interval: 5s, by: [metadata.namespace, reason]}
`, "--cluster-name=e2e")
	event := a.create(namespace, "event", "BackOff", 1)
	first := string(event.UID) + "/" + event.ResourceVersion
	await.Until(t, "the first version", func() bool { return len(readLines(t, file)) > 0 })
	const versions = 40
	for i := range versions - 1 {
		event = a.repeat(event, int32(i+2))
	}
	last := string(event.UID) + "/" + event.ResourceVersion
	var lines []line
	await.Until(t, "the latest version", func() bool {
		lines = readLines(t, file)
		return lines[len(lines)-1].ID == last
	})
	sum, most := 0, 0
	for _, l := range lines {
		sum, most = sum+max(l.Summarized, 1), max(most, l.Summarized)
	}
	if lines[0] != (line{ID: first}) || sum != versions || most < 2 {
		t.Errorf("%d versions are delivered as %v", versions, lines)
	}
	await.Until(t, "the accounts", func() bool {
		c := e.counters()
		filtered := c.Sum("eventd_receiver_filtered_versions_total", "receiver=throttled", "route=back-offs")
		delivered := c.Sum("eventd_receiver_delivered_versions_total", "receiver=throttled")
		return filtered+delivered == versions && delivered+c.Sum("eventd_receiver_summaries_total", "result=delivered") == float64(len(lines))
	})
	e.Terminate(t)
}
