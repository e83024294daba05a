package main

import (
	"bytes"
	"context"
	_ "embed"
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

// demo is what this run needs beside what a deployed eventd does: who looks at
// /metrics, and may do nothing else, and a Lease.
//
//go:embed demo.yaml
var demo []byte

// manifests is what was applied to a cluster.
type manifests struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	added  []added // in the order in which they were
}

// added is an object that was not there before.
type added struct {
	resource dynamic.ResourceInterface
	name     string
}

func newManifests(config *rest.Config) (*manifests, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return nil, err
	}
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(discoveryClient))
	return &manifests{client: client, mapper: mapper}, nil
}

// applyFile applies the manifests in a file.
func (m *manifests) applyFile(ctx context.Context, file string) error {
	content, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if err := m.apply(ctx, content); err != nil {
		return fmt.Errorf("applying %s: %w", file, err)
	}
	return nil
}

// applyDir applies every manifest of a folder, in the order of their names.
func (m *manifests) applyDir(ctx context.Context, dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		return err
	}
	slices.Sort(files)
	for _, file := range files {
		if err := m.applyFile(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

func (m *manifests) apply(ctx context.Context, content []byte) error {
	decoder := utilyaml.NewYAMLOrJSONDecoder(bytes.NewReader(content), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case len(object.Object) == 0: // nothing but comments
			continue
		}
		if err := m.applyObject(ctx, object); err != nil {
			return fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
}

func (m *manifests) applyObject(ctx context.Context, object *unstructured.Unstructured) error {
	kind := object.GroupVersionKind()
	mapping, err := m.mapper.RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return err
	}
	var resource dynamic.ResourceInterface = m.client.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = m.client.Resource(mapping.Resource).Namespace(object.GetNamespace())
	}
	switch _, err := resource.Get(ctx, object.GetName(), metav1.GetOptions{}); {
	case apierrors.IsNotFound(err):
		m.added = append(m.added, added{resource, object.GetName()})
	case err != nil:
		return err
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: "eventd-run", Force: true})
	return err
}

// remove removes what was not there before, and leaves what was.
func (m *manifests) remove(ctx context.Context) error {
	var errs []error
	for _, object := range slices.Backward(m.added) {
		if err := object.resource.Delete(ctx, object.name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
