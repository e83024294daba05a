package upgrade

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A clone without the commit of the previous release says how to get it.
func TestAShallowCloneSaysWhatToDo(t *testing.T) {
	clone := t.TempDir()
	for _, args := range [][]string{{"init", "-q"}, {"-c", "user.name=t", "-c", "user.email=t@example.com", "commit", "-q", "--allow-empty", "-m", "t"}} {
		if out, err := exec.CommandContext(t.Context(), "git", append([]string{"-C", clone}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	folder := filepath.Join(clone, "test", "upgrade")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"previous", "build.sh"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(folder, name), content, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	path, err := build(t.Context(), filepath.Join(folder, "build.sh"))
	if err == nil {
		t.Fatalf("the binary is %s", path)
	}
	for _, advice := range []string{"git fetch --unshallow", "git fetch --depth=1 origin ", BinaryEnv} {
		if !strings.Contains(err.Error(), advice) {
			t.Errorf("no %q in:\n%v", advice, err)
		}
	}
}
