package deploy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"

	"github.com/eventd/eventd/test/testenv"
)

// inventory has all objects of a cluster, by resource, namespace and name.
type inventory map[string]*metav1.PartialObjectMetadata

// takeInventory lists every resource that can be listed and deleted, in all namespaces. Of the served
// versions of a group, the preferred one has all of its objects. The two resources of Events are the same.
func takeInventory(t *testing.T, c *testenv.ControlPlane) inventory {
	t.Helper()
	groups, err := discovery.NewDiscoveryClientForConfigOrDie(c.Config()).ServerPreferredResources()
	if failed := (*discovery.ErrGroupDiscoveryFailed)(nil); err != nil && !errors.As(err, &failed) {
		t.Fatal(err)
	}
	client := metadata.NewForConfigOrDie(c.Config())
	all, kinds := inventory{}, 0
	for _, group := range groups {
		version, err := schema.ParseGroupVersion(group.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range group.APIResources {
			if !slices.Contains(resource.Verbs, "list") || !slices.Contains(resource.Verbs, "delete") {
				continue
			}
			kinds++
			list, err := client.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("%s: %v", resource.Name, err)
			}
			for i := range list.Items {
				o := &list.Items[i]
				all[fmt.Sprintf("%s.%s %s/%s", resource.Name, version.Group, o.Namespace, o.Name)] = o
			}
		}
	}
	if kinds < 40 || len(all) < 100 { // a kube-apiserver has more of both
		t.Fatalf("there are %d objects of %d resources", len(all), kinds)
	}
	return all
}

func (i inventory) isEvent(key string) bool {
	return strings.HasPrefix(key, "events.")
}

// writers are the managers of fields of these objects.
func (i inventory) writers() map[string]bool {
	writers := map[string]bool{}
	for _, o := range i {
		for _, f := range o.ManagedFields {
			writers[f.Manager] = true
		}
	}
	return writers
}

// added returns the objects that were not there before, but for Events and for those of which all fields
// are managed by whom the objects before were made: the apiserver makes some late. An object that was there
// is added if it has other labels, annotations, finalizers or owners.
func (i inventory) added(before inventory) (keys []string) {
	writers := before.writers()
	for _, key := range slices.Sorted(maps.Keys(i)) {
		o, was := i[key], before[key]
		late := !slices.ContainsFunc(o.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return !writers[f.Manager] })
		switch {
		case i.isEvent(key), was == nil && late && len(o.ManagedFields) > 0:
		case was == nil, !maps.Equal(o.Labels, was.Labels), !late && !maps.Equal(o.Annotations, was.Annotations),
			!slices.Equal(o.Finalizers, was.Finalizers), len(o.OwnerReferences) != len(was.OwnerReferences):
			keys = append(keys, key)
		}
	}
	return keys
}

// missing returns the objects that are not there any more.
func (i inventory) missing(before inventory) (keys []string) {
	for _, key := range slices.Sorted(maps.Keys(before)) {
		if i[key] == nil && !i.isEvent(key) {
			keys = append(keys, key)
		}
	}
	return keys
}
