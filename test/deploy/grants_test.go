package deploy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/test/testenv"
)

// right is one verb on one resource: in all namespaces if namespace is empty, on
// all objects if name is.
type right struct{ verb, group, resource, namespace, name string }

// String is the right in the arguments of "kubectl auth can-i".
func (r right) String() string {
	s := r.verb + " " + r.resource
	if r.group != "" {
		s += "." + r.group
	}
	if r.name != "" {
		s += "/" + r.name
	}
	return s
}

// needed returns the right that a request needs; ok is false for one without an object,
// such as one for a discovery document.
func needed(a *testenv.AuditedRequest) (_ right, ok bool) {
	if a.ObjectRef == nil {
		return right{}, false
	}
	o := a.ObjectRef
	resource := o.Resource
	if o.Subresource != "" {
		resource += "/" + o.Subresource
	}
	return right{verb: neededVerb(a), group: o.APIGroup, resource: resource, namespace: o.Namespace, name: o.Name}, true
}

// neededVerb is the verb of that right. The update of an object that does not exist, or a
// server-side apply, is authorized as such, and then as a create.
func neededVerb(a *testenv.AuditedRequest) string {
	creates := a.ResponseStatus.Code == http.StatusCreated || a.Refused() && strings.Contains(a.ResponseStatus.Message, "cannot create")
	if creates && (a.Verb == "update" || a.Verb == "patch") {
		return "create"
	}
	return a.Verb
}

// covers reports whether r includes other.
func (r right) covers(other right) bool {
	return r.verb == other.verb && r.group == other.group && r.resource == other.resource &&
		(r.namespace == "" || r.namespace == other.namespace) && (r.name == "" || r.name == other.name)
}

// ofAccount is the same right of another account, which has a Lease of its own
// name, and a serving CA of that Lease.
func (r right) ofAccount(account string) right {
	switch {
	case r.resource == "leases":
		r.name = account
	case r.name == servingCA:
		r.name = servingCAOf(account)
	}
	return r
}

// granted returns the rights that deploy/ grants to the ServiceAccount of a Deployment, one verb on
// one resource each. Roles that deploy/ only names are read from the cluster.
func granted(t *testing.T, name string) (rights []right) {
	t.Helper()
	client := administrator()
	for _, object := range rendered(t, manifests) {
		switch o := object.(type) {
		case *rbacv1.RoleBinding:
			if o.Subjects[0].Name != accounts[name] {
				continue
			}
			role, err := client.RbacV1().Roles(o.Namespace).Get(t.Context(), o.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rights = append(rights, expanded(t, o.Namespace, role.Rules)...)
		case *rbacv1.ClusterRoleBinding:
			if o.Subjects[0].Name != accounts[name] {
				continue
			}
			role, err := client.RbacV1().ClusterRoles().Get(t.Context(), o.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rights = append(rights, expanded(t, "", role.Rules)...)
		}
	}
	return rights
}

func expanded(t *testing.T, namespace string, rules []rbacv1.PolicyRule) (rights []right) {
	t.Helper()
	for _, rule := range rules {
		all := slices.Concat(rule.Verbs, rule.APIGroups, rule.Resources)
		unlimited := namespace != "" && len(rule.ResourceNames) == 0 && !slices.Equal(rule.Resources, []string{"events"}) // to objects of a namespace that are not eventd's
		if slices.Contains(all, "*") || slices.Contains(rule.Resources, "secrets") && !slices.Equal(rule.ResourceNames, []string{servingCA}) || len(rule.NonResourceURLs) > 0 || unlimited {
			t.Errorf("a rule gives more than eventd may have: %v", rule)
		}
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, verb := range rule.Verbs {
			for _, group := range rule.APIGroups {
				for _, resource := range rule.Resources {
					for _, name := range names {
						rights = append(rights, right{verb, group, resource, namespace, name})
					}
				}
			}
		}
	}
	return rights
}

// makeAccount makes a ServiceAccount in kube-system with a Lease of the same
// name, a serving CA without data, and these rights, and returns when they are in force.
func makeAccount(t *testing.T, account string, rights []right) {
	t.Helper()
	client := administrator()
	everywhere, here := rulesOf(rights)
	cluster, local := metav1.ObjectMeta{Name: account}, metav1.ObjectMeta{Name: account, Namespace: metav1.NamespaceSystem}
	subjects := []rbacv1.Subject{{Kind: "ServiceAccount", Name: account, Namespace: local.Namespace}}
	clusterRole := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: account}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: account}

	var errs []error
	made := func(_ any, err error) { errs = append(errs, err) }
	rbac, none := client.RbacV1(), metav1.CreateOptions{}
	made(client.CoordinationV1().Leases(local.Namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: local}, none))
	ca := metav1.ObjectMeta{Name: servingCAOf(account)}
	made(client.CoreV1().Secrets(local.Namespace).Create(t.Context(), &corev1.Secret{ObjectMeta: ca}, none))
	made(client.CoreV1().ConfigMaps(local.Namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: ca}, none))
	made(rbac.ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{ObjectMeta: cluster, Rules: everywhere}, none))
	made(rbac.ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{ObjectMeta: cluster, Subjects: subjects, RoleRef: clusterRole}, none))
	made(rbac.Roles(local.Namespace).Create(t.Context(), &rbacv1.Role{ObjectMeta: local, Rules: here}, none))
	made(rbac.RoleBindings(local.Namespace).Create(t.Context(), &rbacv1.RoleBinding{ObjectMeta: local, Subjects: subjects, RoleRef: role}, none))
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	waitAllowed(t, account, rights)
}

// rulesOf returns the rules of a ClusterRole and of a Role in kube-system.
func rulesOf(rights []right) (everywhere, here []rbacv1.PolicyRule) {
	for _, r := range rights {
		rule := rbacv1.PolicyRule{Verbs: []string{r.verb}, APIGroups: []string{r.group}, Resources: []string{r.resource}}
		if r.name != "" {
			rule.ResourceNames = []string{r.name}
		}
		if r.namespace == "" {
			everywhere = append(everywhere, rule)
		} else {
			here = append(here, rule)
		}
	}
	return everywhere, here
}

// waitAllowed waits until rights of an account in kube-system are in force.
func waitAllowed(t *testing.T, account string, rights []right) {
	t.Helper()
	var reviews []authorizationv1.SubjectAccessReviewSpec
	for _, r := range rights {
		reviews = append(reviews, authorizationv1.SubjectAccessReviewSpec{
			User: testenv.User(metav1.NamespaceSystem, account),
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: r.verb, Group: r.group, Resource: r.resource, Namespace: r.namespace, Name: r.name,
			},
		})
	}
	if err := testenv.WaitAllowed(t.Context(), administrator(), reviews...); err != nil {
		t.Fatal(err)
	}
}

// kustomized caches the results of kustomize, which takes a second.
var kustomized = map[string]func() ([]byte, error){
	manifests:         onceKustomized(manifests),
	complete:          onceKustomized(complete),
	example:           onceKustomized(example),
	exampleReceivers:  onceKustomized(exampleReceivers),
	exampleClient:     onceKustomized(exampleClient),
	exampleController: onceKustomized(exampleController),
	installed:         onceKustomized(installed),
}

func onceKustomized(folder string) func() ([]byte, error) {
	return sync.OnceValues(func() ([]byte, error) { return testenv.RunKubectl(context.Background(), "kustomize", folder) })
}

// rendered returns the objects that kustomize makes of one of these folders.
func rendered(t *testing.T, folder string) (objects []runtime.Object) {
	t.Helper()
	out, err := kustomized[folder]()
	if err != nil {
		t.Fatal(err)
	}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(out)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return objects
		}
		if err != nil {
			t.Fatal(err)
		}
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(document, nil, nil)
		if runtime.IsNotRegisteredError(err) {
			object, _, err = unstructured.UnstructuredJSONScheme.Decode(asJSON(t, document), nil, nil)
		}
		if err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		objects = append(objects, object)
	}
}

func asJSON(t *testing.T, document []byte) []byte {
	t.Helper()
	out, err := utilyaml.ToJSON(document)
	if err != nil {
		t.Fatal(err)
	}
	return out
}
