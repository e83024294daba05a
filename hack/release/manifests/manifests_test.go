package manifests

import (
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

const (
	digest = "sha256:44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a"
	image  = "registry.example/eventd@" + digest
)

var source = Source{Folder: "../../..", Repository: "registry.example/eventd", Digest: digest}

// objects are those of a file, by kind and name.
func objects(t *testing.T, file []byte) map[string]string {
	t.Helper()
	found := map[string]string{}
	for object := range strings.SplitSeq(string(file), "\n---\n") {
		var named struct {
			Kind     string
			Metadata struct{ Name string }
		}
		if err := yaml.Unmarshal([]byte(object), &named); err != nil || named.Kind == "" {
			t.Fatalf("%v in\n%s", err, object)
		}
		found[named.Kind+"/"+named.Metadata.Name] = object
	}
	return found
}

// Nothing but the image differs from "kubectl apply -k deploy".
func TestInstallIsTheFolderWithTheImage(t *testing.T) {
	t.Parallel()
	have, err := source.Install()
	if err != nil {
		t.Fatal(err)
	}
	rendered, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), source.Folder+"/deploy")
	if err != nil {
		t.Fatal(err)
	}
	want, err := rendered.AsYaml()
	if err != nil {
		t.Fatal(err)
	}
	folder, file := objects(t, want), objects(t, have)
	if len(folder) != len(file) || len(file) < 5 {
		t.Errorf("%d objects, and %d in the folder", len(file), len(folder))
	}
	for name, object := range folder {
		if strings.HasPrefix(name, "Deployment/") {
			object = strings.Replace(object, "image: eventd:v0.1.0\n", "image: "+image+"\n", 1)
		}
		if strings.TrimSpace(file[name]) != strings.TrimSpace(object) {
			t.Errorf("%s is\n%s\nand in the folder\n%s", name, file[name], object)
		}
	}
	if file["Deployment/eventd-intake"] == "" || !strings.Contains(file["Deployment/eventd-observe"], "--history-bytes=") {
		t.Error("it does not have both roles")
	}
}

func TestComponentsAreThoseThatAreNotInstalled(t *testing.T) {
	t.Parallel()
	names, err := source.Components()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"monitoring", "flowcontrol", "apiservice", "apiservice-observe", "certificate"} {
		if !slices.Contains(names, name) {
			t.Errorf("%s is not among %v", name, names)
		}
	}
	for _, name := range []string{"intake", "observe", "replica"} {
		if slices.Contains(names, name) {
			t.Errorf("%s is among %v", name, names)
		}
	}
}

// A component that is applied afterwards has what it adds and changes, and the same image.
func TestComponentHasWhatItAddsAndChanges(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"flowcontrol": {"FlowSchema/eventd", "PriorityLevelConfiguration/eventd"},
		"certificate": {"Deployment/eventd-intake", "Deployment/eventd-observe"},
	} {
		file, err := source.Component(name)
		if err != nil {
			t.Fatal(err)
		}
		found := objects(t, file)
		if len(found) != len(want) {
			t.Errorf("%s has %d objects", name, len(found))
		}
		for _, object := range want {
			if found[object] == "" {
				t.Errorf("%s has no %s", name, object)
			}
		}
		if deployment := found["Deployment/eventd-intake"]; deployment != "" && !strings.Contains(deployment, "image: "+image+"\n") {
			t.Errorf("%s changes the Deployment to\n%s", name, deployment)
		}
	}
	if file, err := source.Component("unknown"); err == nil {
		t.Errorf("an unknown one has %s", file)
	}
}
