package monitoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

// rule is an alert.
type rule struct {
	Alert, Expr         string
	Labels, Annotations map[string]string
}

// scrape is how deploy/monitoring has eventd scraped: what of its ServiceMonitor
// Prometheus itself understands.
type scrape struct {
	Port, Scheme, Path string
	TLSConfig          struct{ InsecureSkipVerify bool }
}

// overlay writes a kustomization as a user would, with patches.
func overlay(t *testing.T, patches ...string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	deploy, err := filepath.Abs("../../deploy")
	if err == nil {
		deploy, err = filepath.Rel(dir, deploy)
	}
	if err != nil {
		t.Fatal(err)
	}
	kustomization := fmt.Sprintf("resources: [%s]\ncomponents: [%s]\npatches: [%s]\n", deploy, filepath.Join(deploy, "monitoring"), strings.Join(patches, ", "))
	if err := os.WriteFile(filepath.Join(dir, "kustomization.yaml"), []byte(kustomization), 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// find decodes the only object of a kind and name that an overlay of deploy/ and
// deploy/monitoring makes.
func find(t *testing.T, kind, name string, into any) {
	t.Helper()
	rendered, err := testenv.RunKubectl(t.Context(), "kustomize", overlay(t))
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(rendered), 4096)
	found := 0
	for err == nil {
		var raw json.RawMessage
		var object metav1.PartialObjectMetadata
		if err = decoder.Decode(&raw); err == nil {
			err = json.Unmarshal(raw, &object)
		}
		if err == nil && object.Kind == kind && object.Name == name {
			found++
			err = json.Unmarshal(raw, into)
		}
	}
	if found != 1 || !errors.Is(err, io.EOF) {
		t.Fatalf("there are %d of %s %s (%v)", found, kind, name, err)
	}
}

// ruleFile returns the content of a rule file of Prometheus with the alerts of
// deploy/monitoring, and the alerts.
func ruleFile(t *testing.T) (content []byte, rules []rule) {
	t.Helper()
	var object struct {
		Spec json.RawMessage // JSON is YAML
	}
	find(t, "PrometheusRule", "eventd", &object)
	var spec struct {
		Groups []struct{ Rules []rule }
	}
	if err := json.Unmarshal(object.Spec, &spec); err != nil {
		t.Fatal(err)
	}
	for _, g := range spec.Groups {
		rules = append(rules, g.Rules...)
	}
	return object.Spec, rules
}

// serviceMonitor is what of a ServiceMonitor is looked at here.
type serviceMonitor struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		JobLabel  string
		Selector  metav1.LabelSelector
		Endpoints []scrape
	}
}

// findServiceMonitor returns that of deploy/monitoring.
func findServiceMonitor(t *testing.T) (m serviceMonitor) {
	t.Helper()
	find(t, "ServiceMonitor", "eventd", &m)
	if n := len(m.Spec.Endpoints); n != 1 {
		t.Fatalf("the ServiceMonitor has %d endpoints", n)
	}
	return m
}

// By these fields an operator finds the replicas, and gives them the job that all
// alerts and panels go by. An apiserver takes others just as well.
func TestServiceMonitorIsAboutTheServices(t *testing.T) {
	m := findServiceMonitor(t)
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	for _, name := range []string{"eventd", "eventd-observe"} {
		var service corev1.Service
		find(t, "Service", name, &service)
		if err != nil || selector.Empty() || !selector.Matches(labels.Set(service.Labels)) || m.Namespace != service.Namespace {
			t.Errorf("it selects %v in %s, and %s has %v in %s (%v)", selector, m.Namespace, name, service.Labels, service.Namespace, err)
		}
		if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
			t.Errorf("it scrapes the port %q, and %s has %v", m.Spec.Endpoints[0].Port, name, service.Spec.Ports)
		}
		if job := service.Labels[m.Spec.JobLabel]; job != "eventd" {
			t.Errorf("by the label %s the job of %s is %q", m.Spec.JobLabel, name, job)
		}
	}
}

// The binding is to the account of somebody else's Prometheus; an overlay that
// sets the namespace of eventd must leave it alone. It may read nothing else.
func TestPrometheusOfTheClusterMayReadMetrics(t *testing.T) {
	var role rbacv1.ClusterRole
	find(t, "ClusterRole", "eventd-metrics-reader", &role)
	want := []rbacv1.PolicyRule{{NonResourceURLs: []string{"/metrics"}, Verbs: []string{"get"}}}
	if diff := cmp.Diff(want, role.Rules); diff != "" {
		t.Errorf("its rules are (-want +got)\n%s", diff)
	}
	var binding rbacv1.ClusterRoleBinding
	find(t, "ClusterRoleBinding", "eventd-metrics-reader", &binding)
	if binding.RoleRef.Name != role.Name || len(binding.Subjects) != 1 || binding.Subjects[0].Name != "prometheus-k8s" || binding.Subjects[0].Namespace != "monitoring" {
		t.Errorf("%s is bound to %v", binding.RoleRef.Name, binding.Subjects)
	}
}

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
