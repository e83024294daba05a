package deploy

import (
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

// The apiserver connects to the Service of deploy/, and trusts the certificate of deploy/certificate.
func TestAPIServiceLeadsToTheServiceOfEventd(t *testing.T) {
	var api *unstructured.Unstructured
	var service *corev1.Service
	for _, object := range rendered(t, complete) {
		switch o := object.(type) {
		case *unstructured.Unstructured:
			api = o
		case *corev1.Service:
			service = o
		}
	}
	if api == nil || service == nil {
		t.Fatalf("there is no APIService or no Service: %v, %v", api, service)
	}
	at := func(path ...string) any {
		value, _, _ := unstructured.NestedFieldNoCopy(api.Object, append([]string{"spec"}, path...)...)
		return value
	}
	gv := v1alpha1.GroupVersion
	if at("group") != gv.Group || at("version") != gv.Version || api.GetName() != gv.Version+"."+gv.Group {
		t.Errorf("%s is for %v/%v", api.GetName(), at("group"), at("version"))
	}
	if at("service", "name") != service.Name || at("service", "namespace") != service.Namespace || at("service", "port") != int64(service.Spec.Ports[0].Port) {
		t.Errorf("it leads to %v, and the Service is %s/%s:%d", at("service"), service.Namespace, service.Name, service.Spec.Ports[0].Port)
	}
	if at("insecureSkipTLSVerify") != nil || at("caBundle") != nil {
		t.Error("its manifest says how eventd is verified: cert-manager or an overlay does")
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs", "certificates.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, certificate, _ := strings.Cut(string(page), "kind: Certificate\n    metadata: ")
	name := "{name: " + service.Name + ", namespace: " + service.Namespace + "}"
	if from := api.GetAnnotations()["cert-manager.io/inject-ca-from"]; from != service.Namespace+"/"+service.Name || !strings.HasPrefix(certificate, name) {
		t.Errorf("cert-manager takes the CA of %s, and docs/certificates.md has %.60s", from, certificate)
	}
	if !strings.Contains(certificate, service.Name+"."+service.Namespace+".svc,") {
		t.Error("the certificate of docs/certificates.md is not for the name that the apiserver verifies")
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
			want = append(want, right{verb: verb, group: v1alpha1.GroupName, resource: resource.Name}.String())
		}
	}
	var got []string
	for _, r := range addedRights(t, "eventd-query") {
		got = append(got, r.String())
	}
	slices.Sort(want)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("everybody may %v, want %v", got, want)
	}
	for _, object := range rendered(t, complete) {
		if binding, ok := object.(*rbacv1.ClusterRoleBinding); ok && binding.RoleRef.Name == "eventd-query" {
			return // TestRolesAreBoundToTheAccountOfThePods looks at its subjects
		}
	}
	t.Error("it is not bound")
}

// kustomize reads a patch in flow style only as JSON.
func TestPatchesOfThePagesCanBeRead(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(repository, "docs", "*.md"))
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
			file := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\npatches:\n" + strings.Join(lines, "")
			if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(file), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := testenv.RunKubectl(t.Context(), "kustomize", folder)
			if err != nil && !strings.Contains(err.Error(), "kustomization.yaml is empty") {
				t.Errorf("%s: %v\n%s", page, err, file)
			}
			patches++
		}
	}
	if patches < 3 {
		t.Errorf("%d snippets with patches", patches)
	}
}
