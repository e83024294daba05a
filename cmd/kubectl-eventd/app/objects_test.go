package app_test

import (
	"fmt"
	"net/http"
	"path"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/servertest"
	"github.com/eventd/eventd/test/testenv"
)

// A custom resource whose singular is not its kind in lower case.
const gadgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, singular: wid, kind: Widget, shortNames: [wd]}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}]
`

const ingress = `
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: web}
spec: {defaultBackend: {service: {name: web, port: {number: 80}}}}
`

// create makes objects of a namespace, or of none, unless they exist.
func create(t *testing.T, cluster *testenv.ControlPlane, namespace string, resource schema.GroupVersionResource, texts ...string) {
	t.Helper()
	client := dynamic.NewForConfigOrDie(cluster.Config()).Resource(resource).Namespace(namespace)
	for _, text := range texts {
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
			t.Fatal(err)
		}
		await.Until(t, "the resource "+resource.String(), func() bool { // a CustomResourceDefinition takes a moment
			_, err := client.Create(t.Context(), object, metav1.CreateOptions{})
			return err == nil || apierrors.IsAlreadyExists(err)
		})
	}
}

func widget(name string) string {
	return fmt.Sprintf("{apiVersion: example.com/v1, kind: Widget, metadata: {name: %q}}", name)
}

// withWidgets makes an Ingress and a custom resource that are called web.
func withWidgets(t *testing.T, cluster *testenv.ControlPlane) (namespace string) {
	t.Helper()
	namespace = cluster.Namespace(t)
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	create(t, cluster, "", crds, gadgets)
	create(t, cluster, namespace, schema.GroupVersionResource{Group: "example.com", Version: "v1", Resource: "widgets"}, widget("web"), widget("web-10"))
	create(t, cluster, namespace, schema.GroupVersionResource{Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, ingress)
	return namespace
}

// Whatever names an object for kubectl get, names it here, and the kind as it is in Events.
func TestObjectsAreNamedAsForKubectl(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := withWidgets(t, cluster)
	eventd := servertest.NewEventd(t, http.HandlerFunc(timelines))
	lead(t, cluster, namespace, eventd)
	c := inCluster(t, cluster, namespace, "jane", eventd)
	names := map[string][]string{
		"Ingress.networking.k8s.io": {"ingress.networking.k8s.io/web", "ingresses.v1.networking.k8s.io/web", "Ingress.v1.networking.k8s.io/web", "ing/web", "INGRESS/web", "ingress.networking/web"},
		"Widget.example.com": {"widgets.example.com/web", "wid.example.com/web", "wid.v1.example.com/web", "wd/web", "Widget/web", "widget/web", "WIDGET.example.com/web",
			"Widget.example.com/web", "Widget.v1.example.com/web", "widgets.v1.example.com/web"},
	}
	for kind, resource := range map[string]string{"Ingress.networking.k8s.io": "ingresses.networking.k8s.io", "Widget.example.com": "widgets.example.com"} {
		out, err := testenv.RunKubectl(t.Context(), "get", resource, "-o", "name", "-n", namespace, "--kubeconfig", adminKubeconfig(t, cluster))
		if err != nil {
			t.Fatal(err)
		}
		names[kind] = append(names[kind], strings.Fields(string(out))[0])
	}
	for kind, all := range names {
		for _, name := range all {
			if out := c.mustRun("timeline " + name + " --no-headers"); !strings.Contains(out, " "+kind+"/web ") {
				t.Errorf("%s is not %s: %s", name, kind, out)
			}
		}
	}
}

func adminKubeconfig(t *testing.T, cluster *testenv.ControlPlane) string {
	t.Helper()
	file := path.Join(t.TempDir(), "admin")
	if err := testenv.WriteKubeconfig(file, cluster.Config()); err != nil {
		t.Fatal(err)
	}
	return file
}

// Objects that are gone or misspelt. eventd has Events of the Widget gone, of the Gizmo former, whose kind is gone too, and of a Widget of another group.
func TestAnObjectThatIsNotThereIsToldFromOneWithoutEvents(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := withWidgets(t, cluster)
	eventd := servertest.NewEventd(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		query := req.URL.Query()
		var items []v1alpha1.TimelineItem
		for name, kind := range map[string]schema.GroupKind{
			"gone": {Group: "example.com", Kind: "Widget"}, "former": {Group: "example.com", Kind: "Gizmo"}, "foreign": {Group: "example.org", Kind: "Widget"},
		} {
			asked, group := query.Get(v1alpha1.ParamKind), query.Get(v1alpha1.ParamGroup)
			if query.Get(v1alpha1.ParamName) == name && (asked == "" || asked == kind.Kind) && (group == "" || group == kind.Group) && query.Get(v1alpha1.ParamType) != "Warning" {
				item := event(name, "of "+name)
				item.Regarding = v1alpha1.ObjectReference{Group: kind.Group, Kind: kind.Kind, Name: name, Namespace: namespace}
				items = append(items, item)
			}
		}
		if path.Base(req.URL.Path) == "why" {
			servertest.WriteJSON(w, http.StatusOK, v1alpha1.Explanation{TypeMeta: typeMeta("Explanation"), Events: items})
			return
		}
		servertest.WriteJSON(w, http.StatusOK, v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), Items: items})
	}))
	lead(t, cluster, namespace, eventd)
	read := rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"widgets"}, Verbs: []string{"get", "list"}}
	jane := inCluster(t, cluster, namespace, "jane", eventd, read)
	john := inCluster(t, cluster, namespace, "john", eventd)
	admin := &cli{t: t, eventd: eventd, flags: []string{"--kubeconfig=" + adminKubeconfig(t, cluster), "--cache-dir=" + t.TempDir(), "--lease-namespace=" + namespace}}
	missing := "error: widgets.example.com \"we\" not found in " + namespace + " namespace, and eventd has no Events of it. Did you mean web or web-10?\n"
	for _, test := range []struct {
		by        *cli
		line      string
		code      int
		out, note string
	}{
		{jane, "timeline widgets/web", 0, "", "No Events of Widget/web found in "},
		{jane, "timeline widgets/we", 1, "", missing},
		{jane, "timeline widgets/we -o json", 1, "", missing},
		{jane, "timeline widgets/we --owned", 1, "", missing},
		{jane, "why widgets/we", 1, "", missing},
		{jane, "timeline widgets/gone", 0, " of gone\n", ""},
		{jane, "timeline widgets/gone --type Warning", 0, "", "No Events of Widget/gone found in "},
		{jane, "timeline widgets/gone --owned", 0, " of gone\n", "Warning: Widget/gone does not exist now"},
		{jane, "timeline widgets/foreign", 1, "", "error: widgets.example.com \"foreign\" not found in " + namespace + " namespace, and eventd has no Events of it"},
		{jane, "timeline gizmos/former", 0, " of former\n", ""},
		{jane, "timeline GIZMO.example.com/former", 0, " of former\n", ""},
		{jane, "timeline gizmos.v1.example.com/former", 0, " of former\n", ""},
		{jane, "timeline gizmos.example.org/former", 1, "", "error: the server doesn't have a resource type \"gizmos\", and eventd has no Events of gizmos/former"},
		{jane, "timeline gizmos.myexample.com/former", 1, "", "error: the server doesn't have a resource type \"gizmos\", and eventd has no Events of gizmos/former"},
		{jane, "timeline WIDGET.example.org/foreign", 0, " of foreign\n", ""},
		{jane, "timeline WIDGET.v9.example.com/web", 1, "", "error: the server doesn't have a resource type \"WIDGET\", and eventd has no Events of WIDGET/web"},
		{jane, "timeline gizmo/web", 1, "", "error: the server doesn't have a resource type \"gizmo\", and eventd has no Events of gizmo/web\n"},
		{jane, "timeline widgts/web", 1, "", "error: the server doesn't have a resource type \"widgts\", and eventd has no Events of widgts/web. Did you mean widgets?\n"},
		{john, "timeline widgets/we", 0, "", "Whether Widget/we exists cannot be checked: widgets.example.com \"we\" is forbidden"},
		{john, "timeline widgets/gone", 0, " of gone\n", ""},
		{admin, "timeline widgets/web -n default", 1, "", "error: widgets.example.com \"web\" not found in default namespace, and eventd has no Events of it. It is in another namespace: -n " + namespace + "\n"},
		{admin, "timeline widgets/web -A", 0, "", "No Events of Widget/web found."},
		{admin, "timeline widgets/we -A", 1, "", "error: widgets.example.com \"we\" not found, and eventd has no Events of it. Did you mean web or web-10?\n"},
		{admin, "why node/n1", 1, "", "error: nodes \"n1\" not found, and eventd has no Events of it"},
	} {
		out, errOut, code := test.by.run(strings.Fields(test.line)...)
		if code != test.code || (out == "") != (test.out == "") || !strings.Contains(out, test.out) || !strings.HasPrefix(errOut, test.note) {
			t.Errorf("%s: exit code %d\n%s%s\nnot %d\n%s%s", test.line, code, out, errOut, test.code, test.out, test.note)
		}
	}
}
