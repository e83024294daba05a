package pipeline_test

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
)

// A source that is no recorder, such as a receiver of another protocol, builds its
// occurrences, and is called back with the outcome of each. In a cluster, the client
// is that of sink.NewClientForConfig.
func ExamplePipeline_Record() {
	ctx := context.Background()
	p, err := pipeline.New(ctx, pipeline.DefaultOptions())
	if err != nil {
		fmt.Println(err)
		return
	}
	if err := p.StartSink(&store{events: make(map[types.NamespacedName]*corev1.Event)}); err != nil {
		fmt.Println(err)
		return
	}
	p.Record(&occurrence.Occurrence{
		API:    occurrence.CoreV1,
		Weight: 1, // it happened once
		Event: &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "shop"},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "shop", Name: "web-0"},
			Source:         corev1.EventSource{Component: "my-source"},
			Type:           corev1.EventTypeWarning, Reason: "LinkDown", Message: "carrier lost on eth0",
		},
		Settled: func(s occurrence.Settlement) { fmt.Println("outcome:", s.Outcome) },
	})
	if err := p.Shutdown(ctx); err != nil {
		fmt.Println(err)
	}
	totals := p.Totals()
	fmt.Println("recorded:", totals.Recorded, "written:", totals.Written(), "pending:", totals.Pending())
	// Output:
	// outcome: created
	// recorded: 1 written: 1 pending: 0
}
