package krew

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// plugin is a release that krew accepts.
func plugin() Plugin {
	p := Plugin{Version: "v1.2.3", Homepage: "https://example.com/eventd"}
	for _, platform := range []string{"linux/amd64", "linux/arm64", "darwin/amd64", "darwin/arm64", "windows/amd64"} {
		system, arch, _ := strings.Cut(platform, "/")
		p.Archives = append(p.Archives, Archive{
			OS: system, Arch: arch, URL: fmt.Sprintf("https://example.com/%s_%s.tar.gz", system, arch),
			SHA256: strings.Repeat("0123456789abcdef", 4), Binary: "kubectl-eventd",
		})
	}
	return p
}

// validate asks krew's own program, which maintainers of its index run.
func validate(t *testing.T, p Plugin) (out string, err error) {
	t.Helper()
	content, err := p.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), Name+".yaml")
	if err := os.WriteFile(file, content, 0o644); err != nil {
		t.Fatal(err)
	}
	tool := exec.CommandContext(t.Context(), "go", "-C", "../../../tools", "tool", "validate-krew-manifest", "-skip-install", "-manifest="+file)
	said, err := tool.CombinedOutput()
	return string(said), err
}

func TestManifestIsWhatKrewAccepts(t *testing.T) {
	if out, err := validate(t, plugin()); err != nil || !strings.Contains(out, "no overlapping") {
		t.Errorf("%v: %s", err, out)
	}
}

// So krew reads what a manifest has, and this test is no empty one.
func TestManifestThatKrewRefuses(t *testing.T) {
	for want, spoil := range map[string]func(*Plugin){
		"failed to parse plugin version": func(p *Plugin) { p.Version = "1" },
		"sha256":                         func(p *Plugin) { p.Archives[1].SHA256 = "none" },
		"overlapping":                    func(p *Plugin) { p.Archives[1] = p.Archives[0] },
		"doesn't match any supported":    func(p *Plugin) { p.Archives[1].OS = "plan9" },
		"`bin` has to be set":            func(p *Plugin) { p.Archives[1].Binary = "" },
	} {
		p := plugin()
		spoil(&p)
		if out, err := validate(t, p); err == nil || !strings.Contains(out, want) {
			t.Errorf("without %q it says %v: %s", want, err, out)
		}
	}
}
