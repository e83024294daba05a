package cluster

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

// The steps of docs/deployment.md remove eventd, and all that it has made.
func TestNothingIsLeftOfAnUninstalledEventd(t *testing.T) {
	before := objects(t)
	install(t)
	kubectl(t, "-n", system, "delete", "deployment", intake, observe, "--cascade=foreground")
	kubectl(t, "delete", "--ignore-not-found", "-k", kustomization(t, "components: [../../deploy/flowcontrol]\n"))
	for _, name := range slices.Sorted(maps.Keys(objects(t))) {
		if !before[name] && strings.Contains(name, "eventd") {
			t.Errorf("%s is left", name)
		}
	}
}

// objects are all objects but Events, by resource, namespace and name.
func objects(t *testing.T) map[string]bool {
	t.Helper()
	found := map[string]bool{}
	resources := strings.Fields(kubectl(t, "api-resources", "--verbs=list,delete", "-o", "name"))
	resources = slices.DeleteFunc(resources, func(name string) bool { return strings.HasPrefix(name, "events") })
	out := kubectl(t, "get", strings.Join(resources, ","), "-A", "--no-headers", "-o", "custom-columns=K:.kind,S:.metadata.namespace,N:.metadata.name")
	for line := range strings.Lines(out) {
		found[strings.Join(strings.Fields(line), " ")] = true
	}
	return found
}
