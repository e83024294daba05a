package app_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
)

// owned is an object that another one owns.
func owned(name, owner string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: owner, UID: types.UID("uid-" + owner)}},
		},
	}
}

// The apiserver accepts owner references that form a cycle. --owned ends all the same, and shows each object once, and
// each Event, also one that both timelines have as it does not say the group of its object. A Job of another group than
// batch may own more than Pods.
func TestACycleOfOwnersEnds(t *testing.T) {
	c := newCLI(t, everything())
	a, b := owned("a", "b"), owned("b", "a")
	list := func(o metav1.PartialObjectMetadata) any {
		return &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"}, Items: []metav1.PartialObjectMetadata{o},
		}
	}
	version := metav1.GroupVersionForDiscovery{GroupVersion: "batch.example.com/v1", Version: "v1"}
	mux := http.NewServeMux()
	mux.Handle("/", c.cluster.Config.Handler)
	for path, object := range map[string]any{
		"/api/v1": &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "services", SingularName: "service", Namespaced: true, Kind: "Service", Verbs: metav1.Verbs{"get", "list"}}},
		},
		"/apis": &metav1.APIGroupList{TypeMeta: metav1.TypeMeta{Kind: "APIGroupList", APIVersion: "v1"}, Groups: []metav1.APIGroup{
			{Name: "batch.example.com", Versions: []metav1.GroupVersionForDiscovery{version}, PreferredVersion: version},
		}},
		"/apis/batch.example.com/v1": &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "batch.example.com/v1",
			APIResources: []metav1.APIResource{{Name: "jobs", SingularName: "job", Namespaced: true, Kind: "Job", Verbs: metav1.Verbs{"get", "list"}}},
		},
		"/apis/batch.example.com/v1/namespaces/default/jobs/a": &a,
		"/apis/batch.example.com/v1/namespaces/default/jobs":   list(a),
		"/api/v1/namespaces/default/services":                  list(b),
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { servertest.WriteJSON(w, http.StatusOK, object) })
	}
	apiserver := httptest.NewTLSServer(mux)
	defer apiserver.Close()
	c.flags = append(c.flags, "--server="+apiserver.URL)

	if out := c.mustRun("timeline job/a --owned --no-headers"); strings.Count(out, "\n") != 1 {
		t.Errorf("each Event is not shown once: %s", out)
	}
	var names []string
	for _, req := range c.eventd.Requests() {
		names = append(names, req.URL.Query().Get(v1alpha1.ParamGroup)+"/"+req.URL.Query().Get(v1alpha1.ParamName))
	}
	if !slices.Equal(names, []string{"batch.example.com/a", "core/b"}) {
		t.Errorf("the timelines of %q are shown", names)
	}
}

// The kubelet reports many Events within a second, and replicas observe them at other times each: the order of their
// versions is that in which they happened. One of the future is at its place, too.
func TestEventsOfAMomentAreInTheOrderOfTheirVersions(t *testing.T) {
	answers := everything()
	last, timeline := ago(20), v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), KnownSince: ago(60)}
	for i, version := range []string{"100", "98", "99", "9"} {
		e := event("uid-"+string(rune('a'+i))+"/"+version, "version-"+version)
		e.ResourceVersion = version
		e.Last, e.Observed = last, ago(10-i)
		timeline.Items = append(timeline.Items, e)
	}
	future := event("uid-z/50", "version-50")
	future.ResourceVersion, future.Last, future.Observed = "50", ago(-9), ago(30)
	timeline.Items = append(timeline.Items, future)
	answers["timeline"] = timeline
	var got []string
	for line := range strings.Lines(newCLI(t, answers).mustRun("timeline -A --types=Normal,Warning --no-headers")) {
		_, version, _ := strings.Cut(strings.TrimSpace(line), "version-")
		got = append(got, version)
	}
	if want := []string{"50", "9", "98", "99", "100"}; !slices.Equal(got, want) {
		t.Errorf("in the order %q, not %q", got, want)
	}
}
