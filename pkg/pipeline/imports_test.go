package pipeline

import (
	"os/exec"
	"strings"
	"testing"
)

// A controller that imports this package does not compile an apiserver.
func TestImportersCompileNoApiserver(t *testing.T) {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	packages := strings.Fields(string(out))
	if len(packages) < 100 {
		t.Fatalf("only %d packages are listed", len(packages))
	}
	for _, p := range packages {
		for _, unwanted := range []string{"k8s.io/apiserver", "k8s.io/component-base", "k8s.io/kubernetes", "sigs.k8s.io/controller-runtime", "github.com/google/cel-go",
			"github.com/eventd/eventd/pkg/intake", "github.com/eventd/eventd/pkg/config", "github.com/eventd/eventd/pkg/observer",
			"github.com/eventd/eventd/pkg/receiver", "github.com/eventd/eventd/pkg/rules", "github.com/eventd/eventd/test"} {
			if p == unwanted || strings.HasPrefix(p, unwanted+"/") {
				t.Errorf("pkg/pipeline depends on %s", p)
			}
		}
	}
}
