package app

import (
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// object is what KIND/NAME on the command line means.
type object struct {
	kind, name string
	// mapping is nil if the apiserver does not know the kind, which may have been removed.
	mapping *meta.RESTMapping
}

func (o object) String() string { return o.kind + "/" + o.name }

// clusterScoped reports whether the object is in no namespace.
func (o object) clusterScoped() bool {
	return o.mapping != nil && o.mapping.Scope.Name() == meta.RESTScopeNameRoot
}

// set limits a query to the object.
func (o object) set(query url.Values) {
	query.Set(v1alpha1.ParamKind, o.kind)
	query.Set(v1alpha1.ParamName, o.name)
}

// parseObject splits KIND/NAME or KIND NAME. It refuses other numbers of arguments, so that the commands need not.
func parseObject(args []string) (kind, name string, err error) {
	switch len(args) {
	case 0:
		return "", "", errors.New("name an object as KIND/NAME, such as pod/web-0")
	case 1:
		kind, name, _ = strings.Cut(args[0], "/")
	case 2:
		kind, name = args[0], args[1]
	}
	if kind == "" || name == "" || strings.Contains(name, "/") {
		return "", "", fmt.Errorf("name an object as KIND/NAME, such as pod/web-0, not %q", strings.Join(args, " "))
	}
	return kind, name, nil
}

// object finds the kind of an object by the discovery of the cluster, so that short names work.
func (p *plugin) object(args []string) (object, error) {
	kind, name, err := parseObject(args)
	if err != nil {
		return object{}, err
	}
	mapping, err := p.mapping(kind)
	switch {
	case meta.IsNoMatchError(err):
		kind, _, _ = strings.Cut(kind, ".") // as typed
		return object{kind: kind, name: name}, nil
	case err != nil:
		return object{}, err
	}
	return object{kind: mapping.GroupVersionKind.Kind, name: name, mapping: mapping}, nil
}

// kind returns the kind of the API that an argument means, or "" if the discovery of the cluster does not know it,
// or fails.
func (p *plugin) kind(arg string) string {
	mapping, err := p.mapping(arg)
	if err != nil {
		return ""
	}
	return mapping.GroupVersionKind.Kind
}

// mapping finds a kind as kubectl does: by a resource, a short name or a kind, with or without its group.
func (p *plugin) mapping(arg string) (*meta.RESTMapping, error) {
	mapper, err := p.kubeconfig.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	resource, groupResource := schema.ParseResourceArg(arg)
	if resource == nil {
		unversioned := groupResource.WithVersion("")
		resource = &unversioned
	}
	if kind, err := mapper.KindFor(*resource); err == nil {
		return mapper.RESTMapping(kind.GroupKind(), kind.Version)
	}
	kind, groupKind := schema.ParseKindArg(arg)
	if kind != nil {
		if mapping, err := mapper.RESTMapping(kind.GroupKind(), kind.Version); err == nil {
			return mapping, nil
		}
	}
	return mapper.RESTMapping(groupKind)
}

// target is an object, and the namespace in which its Events are.
type target struct {
	object
	namespace string // "" is all
}

// target reads the command line, and limits a query to the Events of the object. Those of one that is in no
// namespace are in default, unless a namespace is named.
func (p *plugin) target(cmd *cobra.Command, s *scope, args []string, query url.Values) (target, error) {
	o, err := p.object(args)
	if err != nil {
		return target{}, err
	}
	o.set(query)
	namespace, err := s.set(p, query)
	if err != nil {
		return target{}, err
	}
	if o.clusterScoped() && !s.all && !cmd.Flags().Changed("namespace") {
		namespace = metav1.NamespaceDefault
		query.Set(v1alpha1.ParamNamespace, namespace)
	}
	return target{o, namespace}, nil
}
