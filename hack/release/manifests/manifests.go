// Package manifests renders the files that are applied from the folder deploy/.
package manifests

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/kustomize/api/konfig"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/resmap"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
)

// Source is a checkout, with the image that is to run.
type Source struct {
	// Folder is its root.
	Folder string
	// Repository is where the image is, and Digest which one it is.
	Repository, Digest string
}

// Install is all that deploy/ has, for one "kubectl apply".
func (s Source) Install() ([]byte, error) {
	objects, err := s.render()
	if err != nil {
		return nil, err
	}
	return objects.AsYaml()
}

// Components are those folders of deploy/ that can be added to it.
func (s Source) Components() (names []string, err error) {
	folders, err := filepath.Glob(filepath.Join(s.Folder, "deploy", "*", konfig.DefaultKustomizationFileName()))
	if err != nil {
		return nil, err
	}
	for _, file := range folders {
		folder := filepath.Dir(file)
		k, err := kustomization(folder)
		if err != nil {
			return nil, err
		}
		if k.Kind == types.ComponentKind {
			names = append(names, filepath.Base(folder))
		}
	}
	return names, nil
}

// Component is what a component adds to deploy/, and changes in it.
func (s Source) Component(name string) ([]byte, error) {
	installed, err := s.render()
	if err != nil {
		return nil, err
	}
	with, err := s.render(name)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	for _, object := range with.Resources() {
		content, err := object.AsYAML()
		if err != nil {
			return nil, err
		}
		if same, err := installed.GetByCurrentId(object.CurId()); err == nil && same.MustYaml() == string(content) {
			continue
		}
		if out.Len() > 0 {
			out.WriteString("---\n")
		}
		out.Write(content)
	}
	return out.Bytes(), nil
}

// render is deploy/ with components, and the image.
func (s Source) render(components ...string) (resmap.ResMap, error) {
	files, err := inMemory(s.Folder, "deploy")
	if err != nil {
		return nil, err
	}
	k := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{"../deploy"},
		Images:    []types.Image{{Name: "eventd", NewName: s.Repository, Digest: s.Digest}},
	}
	for _, component := range components {
		k.Components = append(k.Components, "../deploy/"+component)
	}
	content, err := yaml.Marshal(k)
	if err != nil {
		return nil, err
	}
	if err := files.WriteFile("/release/"+konfig.DefaultKustomizationFileName(), content); err != nil {
		return nil, err
	}
	objects, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(files, "/release")
	if err != nil {
		return nil, fmt.Errorf("deploy/ with the components [%s]: %w", strings.Join(components, " "), err)
	}
	return objects, nil
}

// inMemory has copies of folders, to which a kustomization can be added.
func inMemory(root string, folders ...string) (filesys.FileSystem, error) {
	files := filesys.MakeFsInMemory()
	for _, folder := range folders {
		err := fs.WalkDir(os.DirFS(root), folder, func(name string, entry fs.DirEntry, err error) error {
			if err != nil || entry.IsDir() {
				return err
			}
			content, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(name)))
			if err != nil {
				return err
			}
			return files.WriteFile("/"+name, content)
		})
		if err != nil {
			return nil, err
		}
	}
	return files, nil
}

func kustomization(folder string) (types.Kustomization, error) {
	var k types.Kustomization
	content, err := os.ReadFile(filepath.Join(folder, konfig.DefaultKustomizationFileName()))
	if err != nil {
		return k, err
	}
	if err := k.Unmarshal(content); err != nil {
		return k, fmt.Errorf("%s: %w", folder, err)
	}
	return k, nil
}
