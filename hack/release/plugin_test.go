package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// krew installs the plugin from the archive, whose checksum the manifest has.
func TestKrewInstallsThePlugin(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	install := func(archive string) ([]byte, error) {
		krew := exec.CommandContext(t.Context(), "go", "-C", "../../tools", "tool", "krew", "install",
			"--manifest="+filepath.Join(made, "krew", "eventd.yaml"), "--archive="+archive)
		krew.Env = append(os.Environ(), "KREW_ROOT="+root, "KREW_OS=linux", "KREW_ARCH="+runtime.GOARCH)
		return krew.CombinedOutput()
	}
	if out, err := install(filepath.Join(made, named("eventd", ".tar.gz"))); err == nil || !strings.Contains(string(out), "checksum") {
		t.Errorf("it installs another archive (%v): %s", err, out)
	}
	if out, err := install(filepath.Join(made, named("kubectl-eventd", ".tar.gz"))); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, file := range []string{"bin/kubectl-eventd", "store/eventd/v1.2.3/LICENSE", "store/eventd/v1.2.3/THIRD_PARTY_LICENSES"} {
		if _, err := os.Stat(filepath.Join(root, file)); err != nil {
			t.Error(err)
		}
	}
}
