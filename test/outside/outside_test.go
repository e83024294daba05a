// Package outside uses eventd as another module does. Its module path is not below
// that of eventd, so the compiler refuses an import of internal/.
package outside

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
)

// client is a sink.Client of another module. Its apiserver is client-go's fake.
type client struct{ core typedcorev1.CoreV1Interface }

var _ sink.Client = client{}

func (c client) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return c.core.Events(event.Namespace).Create(ctx, event, metav1.CreateOptions{})
}

func (c client) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return c.core.Events(namespace).Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
}

// Another module implements sink.Client, records occurrences that it builds, and reads
// the outcome of each and the totals.
func TestSourceAndSinkOfAnotherModule(t *testing.T) {
	core := fake.NewClientset().CoreV1()
	p, err := pipeline.New(t.Context(), pipeline.DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	if err := p.StartSink(client{core}); err != nil {
		t.Fatal(err)
	}
	outcomes := make(chan occurrence.Settlement, 3)
	for range cap(outcomes) {
		p.Record(&occurrence.Occurrence{
			Event: &corev1.Event{
				ObjectMeta:     metav1.ObjectMeta{Namespace: "shop"},
				InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"},
				Source:         corev1.EventSource{Component: "outside"},
				Reason:         "Restarted", Message: "seen from outside", Type: corev1.EventTypeWarning,
			},
			API: occurrence.CoreV1, Weight: 1,
			Settled: func(s occurrence.Settlement) { outcomes <- s },
		})
	}
	if err := p.Shutdown(t.Context()); err != nil {
		t.Fatal(err)
	}
	for range cap(outcomes) {
		if s := <-outcomes; !s.Counted() || s.Object == nil {
			t.Errorf("an occurrence ended as %s, %s: %v", s.Outcome, s.Reason, s.Err)
		}
	}
	var totals ledger.Totals = p.Totals()
	if totals.Recorded != 3 || totals.Written() != 3 || totals.Pending() != 0 || totals.Outcomes[occurrence.Created] == 0 {
		t.Errorf("the totals are %+v", totals)
	}
	stored, err := core.Events("shop").List(t.Context(), metav1.ListOptions{})
	if err != nil || len(stored.Items) != 1 || stored.Items[0].Count != 3 {
		t.Errorf("stored %+v: %v", stored, err)
	}
}

// Another module swaps the broadcaster of client-go's tools/record, and adds a watcher.
func TestWatcherOfAnotherModule(t *testing.T) {
	broadcaster := pipeline.NewRecordBroadcaster(pipeline.WithContext(t.Context()))
	seen := make(chan *corev1.Event, 1)
	defer broadcaster.StartEventWatcher(func(event *corev1.Event) { seen <- event }).Stop()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: fake.NewClientset().CoreV1().Events("")})
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-0"}}
	broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "outside"}).Event(pod, corev1.EventTypeNormal, "Seen", "from outside")
	select {
	case event := <-seen:
		if event.Reason != "Seen" || event.InvolvedObject.Name != "web-0" {
			t.Errorf("the watcher received %v", event)
		}
	case <-time.After(10 * time.Second):
		t.Error("the watcher received nothing")
	}
	broadcaster.Shutdown()
}
