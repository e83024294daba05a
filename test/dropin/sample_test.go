package dropin

import (
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/dropin/sample"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

func TestSampleRecordsWithTheRightsToCreateAndPatch(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	config := controllerConfig(t, namespace, eventRights(""), eventRights("events.k8s.io"))
	for range 2 { // two lives of the controller
		controller, err := sample.New(t.Context(), kubernetes.NewForConfigOrDie(config))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			controller.Reconcile(t.Context(), podIn(namespace))
		}
		controller.Stop()
	}
	events := eventsByReason(t, namespace)
	if len(events["Reconciled"]) != 2 || len(events["Slow"]) != 1 {
		t.Fatalf("stored %+v", events)
	}
	for _, e := range events["Reconciled"] {
		if stored.Count(&e) != 6 {
			t.Errorf("stored %+v", e)
		}
	}
	if slow := events["Slow"][0]; slow.Count != 6 || slow.Annotations["example.com/by"] != "sample" {
		t.Errorf("stored %+v", slow)
	}
}
