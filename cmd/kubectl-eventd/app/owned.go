package app

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/metadata"
)

// Bounds of what --owned follows.
const (
	maxOwned    = 100    // objects
	maxDepth    = 5      // generations
	maxListed   = 20_000 // objects of one kind in the namespace
	pageOfOwned = 500
)

// ownedKinds are the kinds that a kind owns by the controllers of Kubernetes.
var ownedKinds = map[string][]string{
	"Deployment.apps":       {"replicasets"},
	"ReplicaSet.apps":       {"pods"},
	"ReplicationController": {"pods"},
	"StatefulSet.apps":      {"pods", "persistentvolumeclaims"},
	"DaemonSet.apps":        {"pods"},
	"CronJob.batch":         {"jobs"},
	"Job.batch":             {"pods"},
	"Pod":                   {"persistentvolumeclaims"},
	"PersistentVolumeClaim": nil,
}

// anyKinds are those in which a custom resource usually owns something.
var anyKinds = []string{"deployments", "replicasets", "statefulsets", "daemonsets", "cronjobs", "jobs", "pods", "persistentvolumeclaims", "services"}

// family returns an object, and what it owns, in generations.
func (p *plugin) family(ctx context.Context, subject target) ([]object, error) {
	if subject.mapping == nil {
		return nil, fmt.Errorf("--owned needs a kind that the server has, which %q is not", subject.kind)
	}
	if subject.clusterScoped() || subject.namespace == "" {
		return nil, fmt.Errorf("--owned follows owner references within one namespace: name it by -n")
	}
	reader, err := p.metadata()
	if err != nil {
		return nil, err
	}
	first, err := reader.Resource(subject.mapping.Resource).Namespace(subject.namespace).Get(ctx, subject.name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		if err := p.checkExists(ctx, subject); err != nil {
			return nil, err
		}
		p.note("Warning: %s does not exist now, so what it owned is not known", subject)
		return []object{subject.object}, nil
	}
	if err != nil {
		return nil, err
	}
	tree := &tree{plugin: p, reader: reader, namespace: subject.namespace, listed: map[string][]listed{}, seen: map[types.UID]bool{first.UID: true}}
	generation := []listed{{subject.object, first}}
	family := []object{subject.object}
	for range maxDepth {
		var next []listed
		for _, owner := range generation {
			owned, err := tree.ownedBy(ctx, owner)
			if err != nil {
				return nil, err
			}
			next = append(next, owned...)
		}
		for _, o := range next {
			if len(family) > maxOwned {
				p.note("%s owns more than %d objects: only the first are shown", subject, maxOwned)
				return family, nil
			}
			family = append(family, o.object)
		}
		if generation = next; len(generation) == 0 {
			break
		}
	}
	return family, nil
}

// listed is an object with its owner references.
type listed struct {
	object
	meta *metav1.PartialObjectMetadata
}

// tree lists each kind of a namespace once.
type tree struct {
	*plugin
	reader    metadata.Interface
	namespace string
	listed    map[string][]listed
	seen      map[types.UID]bool // references may form a cycle
}

func (t *tree) ownedBy(ctx context.Context, owner listed) (owned []listed, err error) {
	kinds, known := ownedKinds[owner.mapping.GroupVersionKind.GroupKind().String()]
	if !known {
		kinds = anyKinds
	}
	for _, kind := range kinds {
		all, err := t.list(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, o := range all {
			if isOwned(o.meta, owner.meta.UID) && !t.seen[o.meta.UID] {
				t.seen[o.meta.UID] = true
				owned = append(owned, o)
			}
		}
	}
	return owned, nil
}

func isOwned(o *metav1.PartialObjectMetadata, owner types.UID) bool {
	return slices.ContainsFunc(o.OwnerReferences, func(r metav1.OwnerReference) bool { return r.UID == owner })
}

// list returns the objects of a kind. Those that the caller may not list are left out.
func (t *tree) list(ctx context.Context, kind string) ([]listed, error) {
	if all, done := t.listed[kind]; done {
		return all, nil
	}
	mapping, err := t.mapping(kind)
	if err != nil {
		if meta.IsNoMatchError(err) {
			t.listed[kind] = nil
			err = nil
		}
		return nil, err
	}
	var all []listed
	for next := ""; ; {
		page, err := t.reader.Resource(mapping.Resource).Namespace(t.namespace).List(ctx, metav1.ListOptions{Limit: pageOfOwned, Continue: next})
		if apierrors.IsForbidden(err) {
			t.note("Warning: %s are left out: %v", kind, err)
			break
		}
		if err != nil {
			return nil, err
		}
		for i := range page.Items {
			o := &page.Items[i]
			all = append(all, listed{objectOf(mapping, o.Name), o})
		}
		if next = page.Continue; next == "" {
			break
		}
		if len(all) >= maxListed {
			t.note("Warning: only the first %d %s of the namespace are searched", len(all), kind)
			break
		}
	}
	t.listed[kind] = all
	return all, nil
}
