package ha

import (
	"context"
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/stored"
)

// A process reports to eventd in batches, through leaders and standbys, while leaders are killed
// and terminated. Everything is counted once.
func TestReportsInBatchesSurviveLeadersThatGo(t *testing.T) {
	const series = 40
	cluster := clusterOf(t)
	f := startFleet(t, cluster, shortLease...)
	namespace := cluster.Namespace(t)
	b := pipeline.NewRecordBroadcaster()
	b.StartRecordingToEventd(f.service.through(replica.Reporter(t, cluster, namespace)))
	r := b.NewRecorder(scheme.Scheme, corev1.EventSource{Component: source, Host: "node-1"})
	want, n := stored.Counts[string]{}, 0
	record := func() {
		object := fmt.Sprint("web-", n%series)
		r.Event(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: object, UID: "uid"}}, corev1.EventTypeNormal, "Tested", "it was tested")
		want[object]++
		n++
	}
	end := await.Every(time.Millisecond, func(context.Context) { record() })
	batches := func() (sum float64) {
		for _, m := range f.members {
			sum += m.read("eventd_intake_batched_events_total")
		}
		return sum
	}
	await.Until(t, "the first batches are answered", func() bool { return batches() > 100 })
	for _, end := range []func(*member){(*member).kill, (*member).terminate} {
		leader, _ := f.leader()
		end(leader)
		f.otherLeader(leader)
		leader.start()
		seen := batches()
		await.Until(t, "batches are answered again", func() bool { return batches() > seen+100 })
	}
	end()
	ctx, cancel := await.Context(t)
	defer cancel()
	if err := b.ShutdownWithContext(ctx); err != nil {
		t.Fatal(err)
	}
	f.stop() // they write all that is pending
	stored.Want(t, want, stored.List(t, cluster, namespace), func(e *corev1.Event) string { return e.InvolvedObject.Name })
}
