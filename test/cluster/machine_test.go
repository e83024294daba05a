package cluster

import (
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/await"
)

// One cluster is killed while it starts, and the next, in the same folder, ends in order. The machine is then as before.
func TestAClusterLeavesTheMachineAsItWas(t *testing.T) {
	before := machine(t)
	dir := dir + "-again"
	killed, err := begin(dir, "-nodes", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.await("the nodes start"); err != nil {
		t.Error(err)
	}
	killed.Kill()
	await.Within(t, startTimeout, "its processes have ended", func() bool {
		out, _ := exec.CommandContext(t.Context(), "pgrep", "-f", dir).Output()
		return len(out) == 0
	})
	next, err := begin(dir, "-nodes", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.await("export KUBECONFIG"); err != nil {
		t.Error(err)
	}
	if err := next.end(); err != nil {
		t.Error(err)
	}
	if err := nothingIsLeft(dir); err != nil {
		t.Error(err)
	}
	after := machine(t)
	for _, name := range slices.Sorted(maps.Keys(before)) {
		if after[name] != before[name] {
			t.Errorf("%s was %q, and is %q", name, before[name], after[name])
		}
	}
}

// machine is what a cluster could change: settings of the kernel, links, routes, mounts and rules of the firewall.
func machine(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, folder := range []string{"/proc/sys/net", "/proc/sys/vm", "/proc/sys/kernel/keys", "/proc/sys/kernel/panic", "/proc/sys/kernel/panic_on_oops"} {
		err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
			// What is counted there changes by itself.
			if err != nil || entry.IsDir() || strings.HasSuffix(path, "_count") || strings.HasSuffix(path, "/stat_refresh") {
				return err
			}
			value, err := os.ReadFile(path)
			if err == nil {
				found[path] = string(value)
			}
			return nil // some can only be written
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, command := range []string{"ip -o link", "ip route show table all", "cat /proc/self/mounts", *parts + "/deb/usr/sbin/nft list ruleset"} {
		words := strings.Fields(command)
		listed := exec.CommandContext(t.Context(), words[0], words[1:]...)
		listed.Env = append(os.Environ(), "LD_LIBRARY_PATH="+libraries(t))
		out, err := listed.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, out)
		}
		found[command] = string(out)
	}
	return found
}

// libraries are those of what Debian's packages have.
func libraries(t *testing.T) string {
	t.Helper()
	folders, err := filepath.Glob(*parts + "/deb/usr/lib/*-linux-gnu")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(folders, ":")
}
