package chart

import (
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/chart/common"
	helmchart "helm.sh/helm/v4/pkg/chart/v2"
	"helm.sh/helm/v4/pkg/chart/v2/loader"
	release "helm.sh/helm/v4/pkg/release/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/eventd/eventd/test/testenv"
)

const repository = "../.."

var folder = filepath.Join(repository, "deploy", "chart")

func TestMain(m *testing.M) {
	// Helm says of each link to a file of deploy/ that it has followed it.
	slog.SetDefault(slog.New(slog.NewTextHandler(io.Discard, nil)))
	os.Exit(testenv.Main(m))
}

// load reads a chart. A rendering may change it.
func load(t *testing.T, path string) *helmchart.Chart {
	t.Helper()
	chart, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	return chart
}

func parse(t *testing.T, content string) (values map[string]any) {
	t.Helper()
	if err := yaml.UnmarshalStrict([]byte(content), &values); err != nil {
		t.Fatal(err)
	}
	return values
}

// kubernetes is what a rendering without a cluster is for.
var kubernetes = &common.KubeVersion{Version: "v1.37.2", Major: "1", Minor: "37"}

// template does what "helm template" does.
func template(chart *helmchart.Chart, namespace string, values map[string]any) (*release.Release, error) {
	return templateFor(kubernetes, chart, namespace, values)
}

func templateFor(kubernetes *common.KubeVersion, chart *helmchart.Chart, namespace string, values map[string]any) (*release.Release, error) {
	install := action.NewInstall(action.NewConfiguration())
	install.DryRunStrategy = action.DryRunClient
	install.ReleaseName, install.Namespace, install.KubeVersion = "any", namespace, kubernetes
	rendered, err := install.Run(chart, values)
	if err != nil {
		return nil, err
	}
	return rendered.(*release.Release), nil
}

// objects are a rendering by its keys, in the form that comparisons need.
type objects map[string]map[string]any

func rendered(t *testing.T, namespace, values string) objects {
	t.Helper()
	release, err := template(load(t, folder), namespace, parse(t, values))
	if err != nil {
		t.Fatal(err)
	}
	return decode(t, release.Manifest)
}

// decode reads documents of YAML, of which no two are about one object.
func decode(t *testing.T, documents string) objects {
	t.Helper()
	out := objects{}
	for _, object := range split(t, documents) {
		key := fmt.Sprintf("%s %s %s/%s", object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName())
		if out[key] != nil {
			t.Errorf("%s is there twice", key)
		}
		out[key] = object.Object
		normalize(t, object)
	}
	return out
}

// normalize removes what makes no difference. Volumes, their mounts, the environment (none of which
// refers to another variable), flags that are not repeated, and the fields of the configuration file may
// have any order.
func normalize(t *testing.T, object *unstructured.Unstructured) {
	t.Helper()
	switch object.GetKind() + " " + object.GetName() {
	case "Deployment eventd-intake", "Deployment eventd-observe":
		pod := object.Object["spec"].(map[string]any)["template"].(map[string]any)["spec"].(map[string]any)
		sortByName(pod["volumes"])
		for _, container := range pod["containers"].([]any) {
			slices.SortStableFunc(container.(map[string]any)["args"].([]any), func(a, b any) int {
				nameA, _, _ := strings.Cut(a.(string), "=")
				nameB, _, _ := strings.Cut(b.(string), "=")
				return strings.Compare(nameA, nameB)
			})
			sortByName(container.(map[string]any)["env"])
			sortByName(container.(map[string]any)["volumeMounts"])
		}
	case "ConfigMap eventd-configuration", "ConfigMap eventd-observe-configuration":
		data := object.Object["data"].(map[string]any)
		data["configuration.yaml"] = parse(t, data["configuration.yaml"].(string))
	}
}

func sortByName(list any) {
	slices.SortFunc(list.([]any), func(a, b any) int {
		return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
	})
}
