package destinations_test

import (
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/receiver"
)

// The collector of examples/delivery prints what docs/first-delivery.md says.
func TestExampleOfACollectorPrintsWhatIsDelivered(t *testing.T) {
	manifest, err := os.ReadFile("../../examples/delivery/collector.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var config string
	for document := range strings.SplitSeq(string(manifest), "\n---\n") {
		var object corev1.ConfigMap
		if err := yaml.Unmarshal([]byte(document), &object); err != nil {
			t.Fatal(err)
		}
		if object.Kind == "ConfigMap" {
			config = object.Data["config.yaml"]
		}
	}
	c := localCollector(t, config)
	c.start(t)
	for _, way := range ways {
		send(t, newReceiver(t, c, way, configv1alpha1.Connection{Insecure: true}), []receiver.Record{record(int(len(way.Protocol)))})
	}
	c.stop(t)
	for _, want := range []string{
		"message 4 <ü€> log.record.uid=id 4 <ü€> k8s.event.reason=reason 4 <ü€>",
	} {
		if printed := c.running.Stderr(); !strings.Contains(printed, want) {
			t.Errorf("want %q in\n%s", want, printed)
		}
	}
}
