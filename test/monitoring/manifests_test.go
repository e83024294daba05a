package monitoring

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

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
func TestServiceMonitorIsAboutTheService(t *testing.T) {
	m := findServiceMonitor(t)
	var service corev1.Service
	find(t, "Service", "eventd", &service)
	selector, err := metav1.LabelSelectorAsSelector(&m.Spec.Selector)
	if err != nil || selector.Empty() || !selector.Matches(labels.Set(service.Labels)) || m.Namespace != service.Namespace {
		t.Errorf("it selects %v in %s, and the Service has %v in %s (%v)", selector, m.Namespace, service.Labels, service.Namespace, err)
	}
	if !slices.ContainsFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == m.Spec.Endpoints[0].Port }) {
		t.Errorf("it scrapes the port %q, and the Service has %v", m.Spec.Endpoints[0].Port, service.Spec.Ports)
	}
	if job := service.Labels[m.Spec.JobLabel]; job != "eventd" {
		t.Errorf("by the label %s the job is %q", m.Spec.JobLabel, job)
	}
}

// The binding is to the account of somebody else's Prometheus; an overlay that
// sets the namespace of eventd must leave it alone.
func TestPrometheusOfTheClusterMayReadMetrics(t *testing.T) {
	var binding struct {
		Subjects []struct{ Kind, Name, Namespace string }
	}
	find(t, "ClusterRoleBinding", "eventd-metrics-reader", &binding)
	if len(binding.Subjects) != 1 || binding.Subjects[0].Name != "prometheus-k8s" || binding.Subjects[0].Namespace != "monitoring" {
		t.Errorf("bound to %v", binding.Subjects)
	}
}
