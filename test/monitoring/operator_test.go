package monitoring

import (
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

// The release of the Prometheus operator that deploy/monitoring is tested with. Its
// CustomResourceDefinitions are in its Go module. Nothing imports that module, so
// go.mod does not have it, and its checksum is here.
const (
	operatorModule = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	operatorSum    = "h1:M5xLCLEoaW2IJfnuCwFzzpL+jSVQu3KGT84Pye+fW8s="
)

// operatorKinds are those that deploy/monitoring has objects of.
var operatorKinds = []string{"servicemonitors", "prometheusrules"}

func TestManifestsAreTakenByAnApiserverThatKnowsTheOperator(t *testing.T) {
	if !*withPrometheus {
		t.Skip("needs the Prometheus operator's module: make monitoring")
	}
	cluster := testenv.Shared(t)
	applyOperatorKinds(t, cluster)
	manifests := overlay(t)
	misspelt := map[string]string{
		"intervall": overlay(t, "{target: {kind: ServiceMonitor}, patch: '[{op: add, path: /spec/endpoints/0/intervall, value: 30s}]'}"),
		"forr":      overlay(t, "{target: {kind: PrometheusRule}, patch: '[{op: add, path: /spec/groups/0/rules/0/forr, value: 5m}]'}"),
	}
	for _, how := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
		out, err := dryRun(t, cluster, manifests, how...)
		if err != nil {
			t.Error(err)
		}
		for _, object := range []string{
			"servicemonitor.monitoring.coreos.com/eventd", "prometheusrule.monitoring.coreos.com/eventd", "configmap/eventd-dashboard",
			"clusterrole.rbac.authorization.k8s.io/eventd-metrics-reader", "clusterrolebinding.rbac.authorization.k8s.io/eventd-metrics-reader",
		} {
			if !slices.Contains(strings.Fields(out), object) {
				t.Errorf("there is no %s:\n%s", object, out)
			}
		}
		// The apiserver must validate the fields.
		for field, manifests := range misspelt {
			if _, err := dryRun(t, cluster, manifests, how...); err == nil || !strings.Contains(err.Error(), field) {
				t.Errorf("a field %s, which there is not: %v", field, err)
			}
		}
	}
}

// dryRun applies an overlay with strict validation, without effect.
func dryRun(t *testing.T, c *testenv.ControlPlane, overlay string, how ...string) (names string, err error) {
	t.Helper()
	out, err := c.Kubectl(t.Context(), append(how, "apply", "-k", overlay, "--validate=strict", "--dry-run=server", "-o=name")...)
	return string(out), err
}

// applyOperatorKinds applies the CustomResourceDefinitions that deploy/monitoring needs.
func applyOperatorKinds(t *testing.T, c *testenv.ControlPlane) {
	t.Helper()
	const group = "monitoring.coreos.com"
	definitions := filepath.Join(operatorSource(t), "example", "prometheus-operator-crd")
	for _, kind := range operatorKinds {
		if err := c.Apply(t.Context(), filepath.Join(definitions, group+"_"+kind+".yaml")); err != nil {
			t.Fatal(err)
		}
	}
	client := kubernetes.NewForConfigOrDie(c.Config()).Discovery()
	waitFor(t, "the operator's kinds", func() error {
		served, err := client.ServerResourcesForGroupVersion(group + "/v1")
		if err != nil {
			return err
		}
		missing := slices.Clone(operatorKinds)
		for _, resource := range served.APIResources {
			missing = slices.DeleteFunc(missing, func(kind string) bool { return kind == resource.Name })
		}
		if len(missing) > 0 {
			return fmt.Errorf("missing: %v", missing)
		}
		return nil
	})
}

// operatorSource is a folder with the operator's module, which is downloaded if it
// is not there.
func operatorSource(t *testing.T) (dir string) {
	t.Helper()
	download := exec.CommandContext(t.Context(), "go", "mod", "download", "-json", operatorModule)
	download.Dir = t.TempDir() // no module, whose go.sum it would be compared with
	out, err := download.Output()
	var module struct{ Dir, Sum, Error string }
	if err := errors.Join(err, json.Unmarshal(out, &module)); err != nil || module.Sum != operatorSum {
		t.Fatalf("%s: %v %s\nits checksum is %s, want %s", operatorModule, err, module.Error, module.Sum, operatorSum)
	}
	return module.Dir
}
