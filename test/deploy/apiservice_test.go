package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/eventd/eventd/pkg/history"
	"github.com/eventd/eventd/pkg/query"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/trail"
	"github.com/eventd/eventd/test/testenv"
)

// The apiserver connects to the Services of deploy/, and trusts the certificate of deploy/certificate.
func TestAPIServicesLeadToTheServicesOfEventd(t *testing.T) {
	var apis []*unstructured.Unstructured
	services := map[string]*corev1.Service{}
	for _, object := range rendered(t, complete) {
		switch o := object.(type) {
		case *unstructured.Unstructured:
			apis = append(apis, o)
		case *corev1.Service:
			services[o.Name] = o
		}
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs", "certificates.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, certificate, _ := strings.Cut(string(page), "kind: Certificate\n    metadata: ")
	if len(apis) != len(accounts) || !strings.HasPrefix(certificate, "{name: eventd, namespace: kube-system}") {
		t.Fatalf("there are %d APIServices, and docs/certificates.md has %.60s", len(apis), certificate)
	}
	groups := map[string]string{v1alpha1.GroupName: accounts[intake], v1alpha1.ObserveGroupName: accounts[observe]}
	for _, api := range apis {
		at := func(path ...string) any {
			value, _, _ := unstructured.NestedFieldNoCopy(api.Object, append([]string{"spec"}, path...)...)
			return value
		}
		group, _ := at("group").(string)
		service := services[groups[group]]
		if version := v1alpha1.GroupVersion.Version; service == nil || at("version") != version || api.GetName() != version+"."+group {
			t.Fatalf("%s is for %v/%v", api.GetName(), group, at("version"))
		}
		if at("service", "name") != service.Name || at("service", "namespace") != service.Namespace || at("service", "port") != int64(service.Spec.Ports[0].Port) {
			t.Errorf("%s leads to %v, and the Service is %s/%s:%d", group, at("service"), service.Namespace, service.Name, service.Spec.Ports[0].Port)
		}
		if at("insecureSkipTLSVerify") != nil || at("caBundle") != nil {
			t.Errorf("the manifest of %s says how eventd is verified: cert-manager or an overlay does", group)
		}
		if from := api.GetAnnotations()["cert-manager.io/inject-ca-from"]; from != "kube-system/eventd" {
			t.Errorf("cert-manager takes the CA of %s for %s", from, group)
		}
		if !strings.Contains(certificate, service.Name+"."+service.Namespace+".svc") {
			t.Errorf("the certificate of docs/certificates.md is not for the name that the apiserver verifies of %s", group)
		}
	}
}

// The apiserver lets everybody ask for what eventd serves, and for nothing else.
func TestEverybodyMayAskWhatIsServed(t *testing.T) {
	api, err := query.New(query.Options{
		History: &history.History{}, Trail: &trail.Trail{}, Gatherer: prometheus.NewRegistry(),
		Status: func() v1alpha1.PipelineStatus { return v1alpha1.PipelineStatus{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, resource := range api.Resources() {
		for _, verb := range []string{"list", "watch"} {
			for _, group := range []string{v1alpha1.GroupName, v1alpha1.ObserveGroupName} {
				want = append(want, right{verb: verb, group: group, resource: resource.Name}.String())
			}
		}
	}
	var got []string
	for _, r := range queryRights(t) {
		got = append(got, r.String())
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("everybody may %v, want %v", got, want)
	}
	for _, object := range rendered(t, complete) {
		if binding, ok := object.(*rbacv1.ClusterRoleBinding); ok && binding.RoleRef.Name == "eventd-query" {
			return // TestRolesAreBoundToTheAccountsOfThePods looks at its subjects
		}
	}
	t.Error("it is not bound")
}

// queryRights are those of everybody.
func queryRights(t *testing.T) []right {
	t.Helper()
	for _, object := range rendered(t, complete) {
		if role, ok := object.(*rbacv1.ClusterRole); ok && role.Name == "eventd-query" {
			return expanded(t, "", role.Rules)
		}
	}
	t.Fatal("there is no ClusterRole eventd-query")
	return nil
}

// kustomize applies them to deploy/ and its components.
func TestPatchesOfThePagesCanBeRead(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
	if err != nil {
		t.Fatal(err)
	}
	all, err := filepath.Abs(manifests)
	if err != nil {
		t.Fatal(err)
	}
	patches := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, snippet := range strings.Split(string(text), "\n    patches:\n")[1:] {
			var lines []string
			for line := range strings.Lines(snippet) {
				if !strings.HasPrefix(line, "      ") {
					break
				}
				lines = append(lines, line)
			}
			folder := t.TempDir()
			deploy, err := filepath.Rel(folder, all) // of folders, kustomize takes only relative paths
			if err != nil {
				t.Fatal(err)
			}
			file := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%[1]s]\n"+
				"components: [%[1]s/monitoring, %[1]s/flowcontrol]\npatches:\n%[2]s", deploy, strings.Join(lines, ""))
			if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			if _, err := testenv.RunKubectl(t.Context(), "kustomize", folder); err != nil {
				t.Errorf("%s: %v\n%s", page, err, file)
			}
			patches++
		}
	}
	if patches < 3 {
		t.Errorf("%d snippets with patches", patches)
	}
}
