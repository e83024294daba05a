// Package manifests applies manifests to a cluster, and removes what it has added.
package manifests

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
)

// Applier applies manifests to one cluster. It is for one goroutine.
type Applier struct {
	client  dynamic.Interface
	mapper  meta.RESTMapper
	manager string
	added   []added // in the order in which they were applied
}

// added is an object that did not exist before.
type added struct {
	resource dynamic.ResourceInterface
	name     string
}

// New returns an Applier with the rights of config. The field manager owns the
// fields that it sets.
func New(config *rest.Config, fieldManager string) (*Applier, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	return &Applier{client: client, mapper: mapper, manager: fieldManager}, nil
}

// Apply does a server-side apply of the manifests in a file, or in the .yaml files
// directly in a directory. Files go in the order of their names and documents in that
// of their file. A namespaced object without a namespace goes to "default".
func (a *Applier) Apply(ctx context.Context, path string) error {
	objects, err := read(path)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := a.apply(ctx, object); err != nil {
			return fmt.Errorf("applying %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

func (a *Applier) apply(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := a.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = a.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		if object.GetNamespace() == "" {
			object.SetNamespace(metav1.NamespaceDefault)
		}
		resource = a.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	switch _, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		a.added = append(a.added, added{resource, object.GetName()})
	case err != nil:
		return err
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: a.manager, Force: true})
	return err
}

// Remove deletes the objects that did not exist before Apply, the last one first.
func (a *Applier) Remove(ctx context.Context) error {
	var errs []error
	for _, object := range slices.Backward(a.added) {
		if err := object.resource.Delete(ctx, object.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// read returns the objects of path in the order in which they are applied.
func read(path string) (objects []*unstructured.Unstructured, err error) {
	files := []string{path}
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		files, _ = filepath.Glob(filepath.Join(path, "*.yaml")) // sorted by name
	}
	for _, file := range files {
		if filepath.Base(file) == "kustomization.yaml" {
			continue
		}
		content, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
		for err == nil {
			object := &unstructured.Unstructured{}
			if err = decoder.Decode(&object.Object); len(object.Object) > 0 { // not only comments
				objects = append(objects, object)
			}
		}
		if !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	if len(objects) == 0 {
		return nil, fmt.Errorf("%s: no manifests", path)
	}
	return objects, nil
}
