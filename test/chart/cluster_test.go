package chart

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"

	"github.com/eventd/eventd/test/testenv"
)

// inCluster is everything but the kinds of the Prometheus operator, which are not in the cluster, and a
// certificate in place of eventd's own CA.
const inCluster = `
flowcontrol: {enabled: true}
apiservice: {enabled: true, caBundle: LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0t}`

// Not a dry run of Helm: the apiserver decodes each object strictly, and admits it.
func TestObjectsAreTakenByAnApiserverThatIsStrict(t *testing.T) {
	cluster := testenv.Shared(t)
	client := dynamic.NewForConfigOrDie(cluster.Config())
	mapper := mapperOf(t, cluster)
	for _, namespace := range []string{"kube-system", cluster.Namespace(t)} {
		release, err := template(load(t, folder), namespace, parse(t, inCluster))
		if err != nil {
			t.Fatal(err)
		}
		for _, object := range split(t, release.Manifest) {
			kind := object.GroupVersionKind()
			mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version)
			if err != nil {
				t.Fatal(err)
			}
			content, err := object.MarshalJSON()
			if err != nil {
				t.Fatal(err)
			}
			force := true
			_, err = resourceOf(client, mapping, object).Patch(t.Context(), object.GetName(), types.ApplyPatchType, content, metav1.PatchOptions{
				DryRun: []string{metav1.DryRunAll}, FieldManager: "helm", FieldValidation: metav1.FieldValidationStrict, Force: &force,
			})
			if err != nil {
				t.Errorf("%s %s: %v", object.GetKind(), object.GetName(), err)
			}
		}
	}
}

func mapperOf(t *testing.T, cluster *testenv.ControlPlane) meta.RESTMapper {
	t.Helper()
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClientForConfigOrDie(cluster.Config()))
	if err != nil {
		t.Fatal(err)
	}
	return restmapper.NewDiscoveryRESTMapper(groups)
}

func resourceOf(client dynamic.Interface, mapping *meta.RESTMapping, object *unstructured.Unstructured) dynamic.ResourceInterface {
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		return client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	return client.Resource(mapping.Resource)
}
