package cluster

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
)

// versions are all versions of Events that a watch has seen, by uid/resourceVersion.
type versions struct {
	mu  sync.Mutex
	all map[string]corev1.Event
}

// watchEvents watches from now on, until the end of the test.
func watchEvents(t *testing.T) *versions {
	t.Helper()
	list, err := client.CoreV1().Events("").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w, err := client.CoreV1().Events("").Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	v := &versions{all: map[string]corev1.Event{}}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for change := range w.ResultChan() {
			if event, ok := change.Object.(*corev1.Event); ok && change.Type != "DELETED" {
				v.mu.Lock()
				v.all[string(event.UID)+"/"+event.ResourceVersion] = *event
				v.mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		w.Stop()
		<-ended
	})
	return v
}

func (v *versions) snapshot() map[string]corev1.Event {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Clone(v.all)
}

// reasons are those that hack/cluster/workloads.yaml causes in any case, by the component that reports them.
var reasons = []string{
	"BackOff", "Failed", "Unhealthy", "FailedScheduling", "BackoffLimitExceeded", "FailedMount", "FailedCreate",
	"FailedGetResourceMetric", "Evicted",
}

// Whatever the components of a cluster report of workloads that fail: the history has it as the kube-apiserver does, and a
// receiver and a tail get each version once.
func TestEveryEventOfRealWorkloadsIsKeptAndDelivered(t *testing.T) {
	install(t)
	leads := mustLead(t, observe)
	startCollector(t, leads.Spec.NodeName)
	tailed, watched := tailEvents(t), watchEvents(t) // in this order: what is watched is tailed
	kubectl(t, "apply", "-f", "../../hack/cluster/workloads.yaml")
	awaitReasons := func(reasons ...string) {
		await.Within(t, startTimeout, "all of these reasons are reported: "+strings.Join(reasons, ", "), func() bool {
			reported := map[string]bool{}
			for _, event := range watched.snapshot() {
				reported[event.Reason] = true
			}
			return !slices.ContainsFunc(reasons, func(reason string) bool { return !reported[reason] })
		})
	}
	awaitReasons(reasons...)
	if *turns > 0 { // each takes a minute
		lost := other(leads.Spec.NodeName)
		node(t, lost, "off")
		awaitReasons("NodeNotReady", "SawCompletedJob")
		node(t, lost, "on")
		awaitCondition(t, lost, corev1.NodeReady, true)
	}
	var seen map[string]corev1.Event
	var table comparison
	err := await.Success(t.Context(), startTimeout, func() error {
		kept := timeline(t)
		seen = watched.snapshot() // after that: what is kept is seen
		table = newComparison(seen, kept)
		return table.wantKept()
	})
	if err != nil {
		t.Error(err)
	}
	t.Logf("%d versions", len(seen))
	for i, way := range []struct {
		name     string
		received func() copies
		want     func(corev1.Event) any
	}{
		{"a line", func() copies { return deliveredBy(t, leads) }, lineOf},
		{"a record of the collector", func() copies {
			found := copies{}
			for _, record := range collected(t) {
				found.add(record["log.record.uid"], record)
			}
			return found
		}, recordOf},
		{"an item of the tail", tailed, itemOf},
	} {
		var received copies
		err := await.Success(t.Context(), startTimeout, func() error {
			received = way.received()
			for id, event := range seen {
				if received[id] == nil {
					return fmt.Errorf("%s is not %s: %s", id, way.name, inJSON(itemOf(event)))
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		for id, event := range seen {
			if want := []string{inJSON(way.want(event))}; !slices.Equal(received[id], want) {
				t.Errorf("%s is %s as %s, and stored as %s", id, received[id], way.name, want)
			} else {
				table.of(event).equal[i+1]++
			}
		}
	}
	table.report(t)
}

// tailEvents tails all Events until the end of the test.
func tailEvents(t *testing.T) (seen func() copies) {
	t.Helper()
	tail := command(t.Context(), "kubectl-eventd", "tail", "-A", "-o", "json")
	out, err := tail.StdoutPipe()
	if err == nil {
		err = tail.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	found, ended := copies{}, make(chan struct{})
	go func() {
		defer close(ended)
		for items := json.NewDecoder(out); ; {
			var item v1alpha1.TailItem
			if items.Decode(&item) != nil {
				return
			}
			if item.Event != nil {
				item.Event.Observed = metav1.MicroTime{}
				mu.Lock()
				found.add(item.Event.ID, item.Event)
				mu.Unlock()
			}
		}
	}()
	t.Cleanup(func() {
		<-ended // the context of the test has ended it
		_ = tail.Wait()
	})
	seen = func() copies {
		mu.Lock()
		defer mu.Unlock()
		return maps.Clone(found)
	}
	// It begins with what is now: an Event that comes shows that it has begun.
	await.Within(t, startTimeout, "the tail has begun", func() bool {
		apply(t, fmt.Sprintf(began, time.Now().UnixNano(), time.Now().UTC().Format(time.RFC3339)))
		return len(seen()) > 0
	})
	return seen
}

// began is an Event.
const began = `
apiVersion: v1
kind: Event
metadata: {name: "began.%[1]d", namespace: default}
involvedObject: {apiVersion: v1, kind: Namespace, name: default}
reason: Began
source: {component: test/cluster}
type: Normal
count: 1
firstTimestamp: %[2]q
lastTimestamp: %[2]q
`

// A client in a Pod needs the address of eventd, its CA, and the token of the Pod. Its namespace enforces restricted Pod Security.
func TestTheExampleOfAClientReportsFromAPod(t *testing.T) {
	install(t)
	kubectl(t, "create", "namespace", "eventd-demo")
	copyAuthority(t, "eventd-demo")
	kubectl(t, "apply", "-k", "../../examples/feeder")
	await.Within(t, startTimeout, "Events that eventd has written are stored", func() bool {
		list, err := client.CoreV1().Events("eventd-demo").List(t.Context(), metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, writtenByEventd)
	})
}

func writtenByEventd(e corev1.Event) bool {
	return slices.ContainsFunc(e.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return strings.HasPrefix(f.Manager, "eventd") })
}

// timeline is that of the plugin.
func timeline(t *testing.T) []v1alpha1.TimelineItem {
	t.Helper()
	out := kubectlEventd(t, "timeline", "-A", "--limit=5000", "-o", "json")
	if out == "" {
		return nil // no leader, for a moment
	}
	return decode[v1alpha1.Timeline](t, out).Items
}

// deliveredBy are the versions in the lines of a Pod.
func deliveredBy(t *testing.T, pod corev1.Pod) copies {
	t.Helper()
	delivered := copies{}
	for line := range strings.Lines(kubectl(t, "-n", system, "logs", pod.Name)) {
		var record struct {
			ID           string
			corev1.Event `json:",inline"`
		}
		if json.Unmarshal([]byte(line), &record) == nil && record.ID != "" {
			delivered.add(record.ID, lineOf(record.Event))
		}
	}
	return delivered
}
