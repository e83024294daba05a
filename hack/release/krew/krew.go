// Package krew describes the plugin of kubectl to krew, its package manager.
package krew

import "sigs.k8s.io/yaml"

// Name is that of the plugin and, as <Name>.yaml, of its manifest.
const Name = "eventd"

// Plugin is a release of the plugin.
type Plugin struct {
	Version, Homepage string
	Archives          []Archive
}

// Archive has the plugin for one platform, with the licenses.
type Archive struct {
	OS, Arch string
	// URL is where it will be, SHA256 its digest in hex, Binary the file to run.
	URL, SHA256, Binary string
}

// The fields of the manifest are those of krew.googlecontainertools.github.com/v1alpha2.
type (
	manifest struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Metadata   metadata `json:"metadata"`
		Spec       spec     `json:"spec"`
	}
	metadata struct {
		Name string `json:"name"`
	}
	spec struct {
		Version          string     `json:"version"`
		Homepage         string     `json:"homepage"`
		ShortDescription string     `json:"shortDescription"`
		Description      string     `json:"description"`
		Platforms        []platform `json:"platforms"`
	}
	platform struct {
		Selector selector `json:"selector"`
		URI      string   `json:"uri"`
		SHA256   string   `json:"sha256"`
		Bin      string   `json:"bin"`
	}
	selector struct {
		MatchLabels map[string]string `json:"matchLabels"`
	}
)

// Manifest is what an index of krew has of p.
func (p Plugin) Manifest() ([]byte, error) {
	m := manifest{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   metadata{Name: Name},
		Spec: spec{
			Version: p.Version, Homepage: p.Homepage,
			ShortDescription: "Shows what became of Events",
			Description: "Shows what eventd, a pipeline for the Events of a cluster, does, and what became of\n" +
				"the Events of an object: recorded, merged, dropped, stored, delivered.\n" +
				"It needs eventd in the cluster, and the right to list Events.\n",
		},
	}
	for _, archive := range p.Archives {
		m.Spec.Platforms = append(m.Spec.Platforms, platform{
			Selector: selector{map[string]string{"os": archive.OS, "arch": archive.Arch}},
			URI:      archive.URL, SHA256: archive.SHA256, Bin: archive.Binary,
		})
	}
	return yaml.Marshal(m)
}
