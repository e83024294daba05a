package app

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// object is what KIND/NAME on the command line means.
type object struct {
	// group is the API group, GroupCore for that of Pods. It is "" if the apiserver does not know the kind, and no
	// group was typed.
	group, kind, name string
	// mapping is nil if the apiserver does not know the kind, which may have been removed.
	mapping *meta.RESTMapping
}

// objectOf returns an object of a kind that the apiserver knows.
func objectOf(mapping *meta.RESTMapping, name string) object {
	kind := mapping.GroupVersionKind
	return object{cmp.Or(kind.Group, v1alpha1.GroupCore), kind.Kind, name, mapping}
}

func (o object) String() string { return o.kind + "/" + o.name }

// clusterScoped reports whether the object is in no namespace.
func (o object) clusterScoped() bool {
	return o.mapping != nil && o.mapping.Scope.Name() == meta.RESTScopeNameRoot
}

// set limits a query to the object.
func (o object) set(query url.Values) {
	query.Del(v1alpha1.ParamGroup)
	setUnlessEmpty(query, v1alpha1.ParamGroup, o.group)
	query.Set(v1alpha1.ParamKind, o.kind)
	query.Set(v1alpha1.ParamName, o.name)
}

// means reports whether the kind of an Event is the one that was typed: in any case, or in the plural, and with
// any group, or that which was typed, behind a version or not.
func (o object) means(r v1alpha1.ObjectReference) bool {
	plural, singular := meta.UnsafeGuessKindToResource(schema.GroupVersionKind{Kind: r.Kind})
	typed := strings.ToLower(o.kind)
	return (typed == singular.Resource || typed == plural.Resource) &&
		(o.group == "" || r.Group == "" || strings.HasSuffix("."+o.group, "."+r.Group))
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

// addFor adds the flag by which kubectl events names an object.
func (p *plugin) addFor(cmd *cobra.Command) {
	cmd.Flags().StringVar(&p.forObject, "for", "", "The object, as KIND/NAME.")
	_ = cmd.RegisterFlagCompletionFunc("for", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return p.completeObject(cmd, nil, begun)
	})
}

// named returns the arguments that name an object, or none.
func (p *plugin) named(args []string) ([]string, error) {
	switch {
	case p.forObject == "":
		return args, nil
	case len(args) > 0:
		return nil, errors.New("name the object once: as KIND/NAME or by --for")
	}
	return []string{p.forObject}, nil
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
		kind, group, _ := strings.Cut(kind, ".")
		return object{group: group, kind: kind, name: name}, nil
	case err != nil:
		return object{}, err
	}
	return objectOf(mapping, name), nil
}

// kind returns the group and the kind of the API that an argument means, or "" if the discovery of the cluster does
// not know it, or fails.
func (p *plugin) kind(arg string) (group, kind string) {
	mapping, err := p.mapping(arg)
	if err != nil {
		return "", ""
	}
	o := objectOf(mapping, "")
	return o.group, o.kind
}

// mapping finds a kind as kubectl does: by a resource, a short name or a kind, as resource.version.group or
// resource.group. A kind may be in any case.
func (p *plugin) mapping(arg string) (*meta.RESTMapping, error) {
	mapper, err := p.kubeconfig.ToRESTMapper()
	if err != nil {
		return nil, err
	}
	versioned, unversioned := schema.ParseResourceArg(arg)
	candidates := []schema.GroupVersionResource{unversioned.WithVersion("")}
	if versioned != nil {
		candidates = slices.Insert(candidates, 0, *versioned)
	}
	for _, resource := range candidates {
		if kind, err := mapper.KindFor(resource); err == nil {
			return mapper.RESTMapping(kind.GroupKind(), kind.Version)
		}
	}
	// The singular of a custom resource need not be its kind.
	resources, err := p.resources()
	if err != nil {
		return nil, err
	}
	for _, candidate := range candidates {
		for _, r := range resources {
			if strings.EqualFold(candidate.Resource, r.Kind) && (candidate.Group == "" || candidate.Group == r.Group) && (candidate.Version == "" || candidate.Version == r.Version) {
				return mapper.RESTMapping(schema.GroupKind{Group: r.Group, Kind: r.Kind}, r.Version)
			}
		}
	}
	return nil, &meta.NoResourceMatchError{PartialResource: candidates[0]}
}

// resources returns what the cluster serves, with groups and versions. A group that does not answer is left out.
func (p *plugin) resources() (all []metav1.APIResource, err error) {
	discovery, err := p.kubeconfig.ToDiscoveryClient()
	if err != nil {
		return nil, err
	}
	_, lists, err := discovery.ServerGroupsAndResources()
	if len(lists) == 0 && err != nil {
		return nil, err
	}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") {
				r.Group, r.Version = version.Group, version.Version
				all = append(all, r)
			}
		}
	}
	return all, nil
}

// target is an object, and the namespace in which its Events are.
type target struct {
	object
	namespace string // "" is all
}

// target reads the command line, and limits a query to the Events of the object. Those of one that is in no
// namespace are in default, unless a namespace is named.
func (p *plugin) target(cmd *cobra.Command, args []string, query url.Values) (target, error) {
	o, err := p.object(args)
	if err != nil {
		return target{}, err
	}
	namespace, err := p.inNamespace(query)
	if err != nil {
		return target{}, err
	}
	if o.clusterScoped() && !p.all && !cmd.Flags().Changed("namespace") {
		namespace = metav1.NamespaceDefault
		query.Set(v1alpha1.ParamNamespace, namespace)
	}
	t := target{o, namespace}
	if t.mapping == nil {
		known, _ := p.known(cmd.Context(), t, false) // the query itself tells why eventd does not answer
		for _, reference := range known {
			if t.means(reference) {
				t.kind = reference.Kind
				if t.group != "" {
					t.group = cmp.Or(reference.Group, t.group)
				}
				break
			}
		}
	}
	t.set(query)
	return t, nil
}

// known returns the objects with the name of a target of which eventd has Events or steps, of any kind or of its own.
func (p *plugin) known(ctx context.Context, t target, ofKind bool) (objects []v1alpha1.ObjectReference, err error) {
	c, err := p.connect()
	if err != nil {
		return nil, err
	}
	defer c.Close()
	query := url.Values{v1alpha1.ParamName: {t.name}, v1alpha1.ParamLimit: {strconv.Itoa(v1alpha1.MaxLimit)}}
	setUnlessEmpty(query, v1alpha1.ParamNamespace, t.namespace)
	if ofKind {
		t.set(query)
	}
	for _, resource := range []string{timelineResource, whyResource} {
		var answer struct {
			Items, Steps, Events []struct{ Regarding v1alpha1.ObjectReference }
		}
		if failed := c.Get(ctx, resource, query, &answer); failed != nil && !apierrors.IsNotFound(failed) { // not served
			err = failed
		}
		for _, item := range slices.Concat(answer.Items, answer.Steps, answer.Events) {
			objects = append(objects, item.Regarding)
		}
	}
	return objects, err
}

// checkExists is for an object of which an answer has nothing: an error if eventd has nothing else of it and the
// cluster does not have it, with what may have been meant. If either cannot be checked, stderr says so.
func (p *plugin) checkExists(ctx context.Context, t target) error {
	unknown := fmt.Sprintf("the server doesn't have a resource type %q", t.kind)
	var suggestion string
	if t.mapping == nil {
		suggestion = p.suggestKind(t.kind)
	} else {
		reader, err := p.metadata()
		if err != nil {
			return err
		}
		objects := reader.Resource(t.mapping.Resource)
		exists, err := t.exists(ctx, objects)
		if exists {
			return nil
		}
		if err != nil {
			p.note("Whether %s exists cannot be checked: %v", t, err)
			return nil
		}
		unknown = fmt.Sprintf("%s %q not found", t.mapping.Resource.GroupResource(), t.name)
		if t.namespace != "" && !t.clusterScoped() {
			unknown += " in " + t.namespace + " namespace"
		}
		suggestion = t.suggestName(ctx, objects)
	}
	known, err := p.known(ctx, t, true)
	if len(known) > 0 {
		return nil
	}
	if err != nil {
		p.note("%s%s. Whether eventd has Events of %s cannot be checked: %v", unknown, suggestion, t, err)
		return nil
	}
	what := "it"
	if t.mapping == nil {
		what = t.String()
	}
	return fmt.Errorf("%s, and eventd has no Events of %s%s", unknown, what, suggestion)
}

func (p *plugin) metadata() (metadata.Interface, error) {
	config, err := p.kubeconfig.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return metadata.NewForConfig(config)
}

// exists reports whether the cluster has the object; an error is that this is not known.
func (t target) exists(ctx context.Context, objects metadata.Getter) (bool, error) {
	if t.namespace == "" && !t.clusterScoped() {
		list, err := objects.List(ctx, t.byName())
		return err == nil && len(list.Items) > 0, err
	}
	_, err := t.in(objects).Get(ctx, t.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

// in returns the objects among which the target is.
func (t target) in(objects metadata.Getter) metadata.ResourceInterface {
	if t.clusterScoped() {
		return objects
	}
	return objects.Namespace(t.namespace)
}

func (t target) byName() metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector(metav1.ObjectNameField, t.name).String(), Limit: 1}
}

// suggestName says what may have been meant by the name of an object that does not exist, as far as the caller may
// see that: the namespace where it is, or similar names.
func (t target) suggestName(ctx context.Context, objects metadata.Getter) string {
	if t.namespace != "" && !t.clusterScoped() {
		if elsewhere, err := objects.List(ctx, t.byName()); err == nil && len(elsewhere.Items) > 0 {
			return ". It is in another namespace: -n " + elsewhere.Items[0].Namespace
		}
	}
	return similar(t.name, namesOf(ctx, t.in(objects)))
}

// namesOf lists the names of objects; none after an error.
func namesOf(ctx context.Context, objects metadata.ResourceInterface) (names []string) {
	list, err := objects.List(ctx, metav1.ListOptions{Limit: maxCompleted})
	if err != nil {
		return nil
	}
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	return names
}

func (p *plugin) suggestKind(typed string) string {
	resources, err := p.resources()
	if err != nil {
		return ""
	}
	var names []string
	for _, r := range resources {
		names = append(names, r.Name)
	}
	return similar(strings.ToLower(typed), names)
}

// maxSuggested is how many names an error suggests.
const maxSuggested = 3

// similar asks whether one of the names that are similar was meant. cobra decides what is similar, as for commands.
func similar(typed string, names []string) string {
	all := &cobra.Command{SuggestionsMinimumDistance: 2}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		all.AddCommand(&cobra.Command{Use: name, Run: func(*cobra.Command, []string) {}})
	}
	found := all.SuggestionsFor(typed)
	if len(found) == 0 {
		return ""
	}
	return ". Did you mean " + strings.Join(found[:min(len(found), maxSuggested)], " or ") + "?"
}
