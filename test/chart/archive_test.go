package chart

import (
	"os/exec"
	"path/filepath"
	"testing"

	"helm.sh/helm/v4/pkg/action"
)

// The archive of a release is the chart with another version, and its own image.
func TestArchiveIsTheChart(t *testing.T) {
	t.Parallel()
	out := t.TempDir()
	pack := exec.CommandContext(t.Context(), "go", "-C", "hack/release", "run", ".", "chart", "-source=../..", "-version=v1.2.3", "-o="+out)
	pack.Dir = repository
	if printed, err := pack.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	file := filepath.Join(out, "eventd-1.2.3.tgz")
	lint := action.NewLint()
	lint.Strict, lint.KubeVersion = true, kubernetes
	if result := lint.Run([]string{file}, nil); action.HasWarningsOrErrors(result) {
		t.Errorf("%v %v", result.Errors, result.Messages)
	}
	chart := load(t, file)
	if chart.Metadata.Version != "1.2.3" || chart.Metadata.AppVersion != "v1.2.3" {
		t.Errorf("it is the chart %s for %s", chart.Metadata.Version, chart.Metadata.AppVersion)
	}
	release, err := template(chart, "kube-system", parse(t, everything))
	if err != nil {
		t.Fatal(err)
	}
	same(t, rendered(t, "kube-system", everything+"\nimage: {tag: v1.2.3}"), decode(t, release.Manifest))
}
