package deploy

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/testenv"
)

// What the manifests of the previous release had, and these have not, stays in a cluster, rights too, unless somebody
// deletes it.
func TestUpgradeDeletesWhatIsNoLongerThere(t *testing.T) {
	previous, err := os.ReadFile(filepath.Join(repository, "test", "upgrade", "previous"))
	if err != nil {
		t.Fatal(err)
	}
	commit := regexp.MustCompile(`(?m)^[0-9a-f]{40}$`).FindString(string(previous))
	archive, checkout := filepath.Join(t.TempDir(), "deploy.tar"), t.TempDir()
	for _, command := range [][]string{
		{"git", "-C", repository, "archive", "--output=" + archive, commit, "deploy"},
		{"tar", "-xf", archive, "-C", checkout},
	} {
		if out, err := exec.CommandContext(t.Context(), command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	now := objectsOf(t, repository)
	page, err := os.ReadFile(filepath.Join(repository, "docs", "upgrade.md"))
	if err != nil {
		t.Fatal(err)
	}
	deleted := map[string]bool{}
	for _, command := range regexp.MustCompile(`(?m)^    kubectl .*delete (?:--\S+ )*(\S+) (.+)$`).FindAllStringSubmatch(string(page), -1) {
		for kind := range strings.SplitSeq(command[1], ",") {
			for name := range strings.FieldsSeq(command[2]) {
				deleted[kind+" "+name] = true
			}
		}
	}
	for object := range objectsOf(t, checkout) {
		if !now[object] && !deleted[object] {
			t.Errorf("docs/upgrade.md does not delete %s", object)
		}
	}
}

// objectsOf are the kinds, in lower case, and names of all that deploy/ has, with each of its components.
func objectsOf(t *testing.T, checkout string) map[string]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(checkout, "deploy", "*", "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	relative := func(path string) string {
		absolute, err := filepath.Abs(path)
		if err == nil {
			absolute, err = filepath.Rel(folder, absolute)
		}
		if err != nil {
			t.Fatal(err)
		}
		return absolute
	}
	overlay := "resources: [" + relative(filepath.Join(checkout, "deploy")) + "]\ncomponents:\n"
	for _, file := range files {
		content, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// It takes away objects.
		if component := filepath.Dir(file); filepath.Base(component) != "certificate" && strings.Contains(string(content), "kind: Component") {
			overlay += "- " + relative(component) + "\n"
		}
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(overlay), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := testenv.RunKubectl(t.Context(), "kustomize", folder)
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]bool{}
	for _, object := range regexp.MustCompile(`(?m)^kind: (\w+)\nmetadata:\n(?:  .*\n)*?  name: (\S+)$`).FindAllStringSubmatch(string(out), -1) {
		objects[strings.ToLower(object[1])+" "+object[2]] = true
	}
	if len(objects) < 15 {
		t.Errorf("only %v", objects)
	}
	return objects
}
