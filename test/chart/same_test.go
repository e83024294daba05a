package chart

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
)

// kustomized is what kustomize makes of the folders of this repository that a kustomization names. It
// is in the folder "overlay" beside them.
func kustomized(t *testing.T, kustomization string) objects {
	t.Helper()
	files := filesys.MakeFsInMemory()
	for _, dir := range []string{"deploy", "examples"} {
		if err := filepath.WalkDir(filepath.Join(repository, dir), func(path string, entry os.DirEntry, err error) error {
			if err != nil || !entry.Type().IsRegular() {
				return err
			}
			content, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			return files.WriteFile("/"+strings.TrimPrefix(filepath.ToSlash(path), repository+"/"), content)
		}); err != nil {
			t.Fatal(err)
		}
	}
	header := "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\n"
	if err := files.WriteFile("/overlay/kustomization.yaml", []byte(header+kustomization)); err != nil {
		t.Fatal(err)
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/overlay")
	if err != nil {
		t.Fatal(err)
	}
	documents, err := resources.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, string(documents))
}

// same compares each object by itself: the difference of all of them would be long.
func same(t *testing.T, want, got objects) {
	t.Helper()
	for key := range want {
		if got[key] == nil {
			t.Errorf("%s is not rendered", key)
		} else if diff := cmp.Diff(want[key], got[key]); diff != "" {
			t.Errorf("%s differs (-want +got):\n%s", key, diff)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Errorf("%s is rendered, and should not be", key)
		}
	}
}

// Nothing is left out of the comparison: the chart adds no label. Helm itself adds
// app.kubernetes.io/managed-by, and two annotations with the name of the release, when it installs.
func TestChartRendersTheObjectsOfDeploy(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			want, got := kustomized(t, c.kustomization), rendered(t, "kube-system", c.values)
			if len(got) < 11 {
				t.Errorf("only %d objects", len(got))
			}
			same(t, want, got)
		})
	}
}

func TestChartHasNothingThatHelmWarnsAbout(t *testing.T) {
	t.Parallel()
	for _, c := range cases {
		lint := action.NewLint()
		lint.Strict, lint.Namespace, lint.KubeVersion = true, "kube-system", kubernetes
		result := lint.Run([]string{folder}, parse(t, c.values))
		if result.TotalChartsLinted != 1 || action.HasWarningsOrErrors(result) {
			t.Errorf("%s: %v %v", c.name, result.Errors, result.Messages)
		}
	}
}

// In another namespace, everything that has one is there, but for the right to read the CA of client
// certificates, which is in kube-system.
func TestChartInAnotherNamespace(t *testing.T) {
	t.Parallel()
	for _, values := range []string{"", everything} {
		got, want := rendered(t, "observability", values), objects{}
		for key, object := range rendered(t, "kube-system", values) {
			moved := replaceNamespace(object).(map[string]any)
			if strings.HasSuffix(key, "-authentication-reader") {
				moved["metadata"].(map[string]any)["namespace"] = "kube-system"
			} else {
				key = strings.Replace(key, " kube-system/", " observability/", 1)
			}
			want[key] = moved
		}
		same(t, want, got)
	}
}

// A namespace may be called 123, or true: it is a string all the same.
func TestChartInANamespaceThatLooksLikeANumber(t *testing.T) {
	t.Parallel()
	for _, namespace := range []string{"123", "1e3", "true", "null"} {
		for key, object := range rendered(t, namespace, everything) {
			if in, found := object["metadata"].(map[string]any)["namespace"]; found && in != namespace && in != "kube-system" {
				t.Errorf("%s is in %v", key, in)
			}
			subjects, _ := object["subjects"].([]any)
			for _, subject := range subjects {
				if of, found := subject.(map[string]any)["namespace"]; found && of != namespace && of != "monitoring" {
					t.Errorf("%s is for an account in %v", key, of)
				}
			}
		}
	}
}

// So may everything else that has a name.
func TestNameThatLooksLikeANumber(t *testing.T) {
	t.Parallel()
	const values = `
priorityClassName: "31415"
nodeSelector: {zone: "31415"}
observe: {clusterName: "31415"}
certificate: {enabled: true, secretName: "31415"}
monitoring: {enabled: true, labels: {release: "31415"}, prometheus: {serviceAccount: "31415", namespace: "31415"}}`
	found := 0
	for key, object := range rendered(t, "31415", values) {
		for _, name := range leaves(object) {
			if text, isString := name.(string); isString && text == "31415" {
				found++
			} else if fmt.Sprint(name) == "31415" {
				t.Errorf("%s has a number in place of a name", key)
			}
		}
	}
	if found < 20 {
		t.Errorf("only %d names", found)
	}
}

// leaves are all values below a value of JSON.
func leaves(value any) (all []any) {
	switch v := value.(type) {
	case map[string]any:
		for _, field := range v {
			all = append(all, leaves(field)...)
		}
	case []any:
		for _, item := range v {
			all = append(all, leaves(item)...)
		}
	default:
		all = append(all, v)
	}
	return all
}

// The oldest Kubernetes is that of the fields that the objects have.
func TestOlderKubernetesIsRefused(t *testing.T) {
	t.Parallel()
	for version, want := range map[string]bool{"v1.26.15": false, "v1.27.0": true, "v1.27.3-gke.100": true} {
		_, err := templateFor(&common.KubeVersion{Version: version, Major: "1", Minor: version[3:5]}, load(t, folder), "kube-system", nil)
		if err == nil != want || err != nil && !strings.Contains(err.Error(), "kubeVersion") {
			t.Errorf("%s: %v", version, err)
		}
	}
}

// replaceNamespace returns a value of JSON with another namespace wherever kube-system is named.
func replaceNamespace(value any) any {
	switch v := value.(type) {
	case map[string]any:
		for name, field := range v {
			v[name] = replaceNamespace(field)
		}
	case []any:
		for i, item := range v {
			v[i] = replaceNamespace(item)
		}
	case string:
		if v == "kube-system" || strings.HasPrefix(v, "kube-system/") {
			return strings.Replace(v, "kube-system", "observability", 1)
		}
	}
	return value
}

func TestNotesSayWhatIsNextInThreeLines(t *testing.T) {
	t.Parallel()
	for namespace, want := range map[string]string{
		"kube-system":   "kubectl eventd status\n",
		"observability": "kubectl eventd status --lease-namespace=observability\n",
	} {
		release, err := template(load(t, folder), namespace, nil)
		if err != nil {
			t.Fatal(err)
		}
		notes := release.Info.Notes
		if n := strings.Count(strings.TrimSpace(notes), "\n") + 1; n != 3 || !strings.Contains(notes, want) || !strings.Contains(notes, "-n "+namespace) {
			t.Errorf("%d lines: %s", n, notes)
		}
	}
}
