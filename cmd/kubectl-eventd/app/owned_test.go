package app_test

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/cmd/kubectl-eventd/servertest"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// ownService is a Service that another one owns.
func ownService(name, owner string) metav1.PartialObjectMetadata {
	return metav1.PartialObjectMetadata{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: name, UID: types.UID("uid-" + name),
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: owner, UID: types.UID("uid-" + owner)}},
		},
	}
}

// The apiserver accepts owner references that form a cycle. --owned ends all the same, and shows each object once.
func TestACycleOfOwnersEnds(t *testing.T) {
	c := newCLI(t, everything())
	a, b := ownService("a", "b"), ownService("b", "a")
	mux := http.NewServeMux()
	mux.Handle("/", c.cluster.Config.Handler)
	for path, object := range map[string]any{
		"/api/v1": &metav1.APIResourceList{
			TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}, GroupVersion: "v1",
			APIResources: []metav1.APIResource{{Name: "services", SingularName: "service", Namespaced: true, Kind: "Service", Verbs: metav1.Verbs{"get", "list"}}},
		},
		"/api/v1/namespaces/default/services/a": &a,
		"/api/v1/namespaces/default/services": &metav1.PartialObjectMetadataList{
			TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
			Items:    []metav1.PartialObjectMetadata{a, b},
		},
	} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) { servertest.WriteJSON(w, http.StatusOK, object) })
	}
	apiserver := httptest.NewTLSServer(mux)
	defer apiserver.Close()
	c.flags = append(c.flags, "--server="+apiserver.URL)

	c.mustRun("timeline service/a --owned")
	var names []string
	for _, req := range c.eventd.Requests() {
		names = append(names, req.URL.Query().Get(v1alpha1.ParamName))
	}
	if !slices.Equal(names, []string{"a", "b"}) {
		t.Errorf("the timelines of %q are shown", names)
	}
}
