package main

import (
	"os/exec"
	"strings"
	"testing"
)

// The daemon is linked without what only the plugin needs, and the plugin without the daemon.
func TestPluginAndDaemonShareOnlyWhatBothNeed(t *testing.T) {
	for command, unwanted := range map[string][]string{
		"../eventd": {"k8s.io/cli-runtime", "sigs.k8s.io/kustomize", "github.com/eventd/eventd/cmd/kubectl-eventd"},
		".": {"k8s.io/apiserver", "k8s.io/kubernetes", "github.com/google/cel-go", "github.com/nats-io", "github.com/eventd/eventd/cmd/eventd",
			"github.com/eventd/eventd/pkg/intake", "github.com/eventd/eventd/pkg/sink", "github.com/eventd/eventd/test"},
	} {
		out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", command).Output()
		if err != nil {
			t.Fatal(err)
		}
		packages := strings.Fields(string(out))
		if len(packages) < 100 {
			t.Fatalf("only %d packages are listed", len(packages))
		}
		for _, p := range packages {
			for _, prefix := range unwanted {
				if p == prefix || strings.HasPrefix(p, prefix+"/") {
					t.Errorf("%s depends on %s", command, p)
				}
			}
		}
	}
}
