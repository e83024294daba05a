package cluster

import (
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// One cluster is killed while it starts, and the next, in the same folder, ends in order. The machine is then as before.
func TestAClusterLeavesTheMachineAsItWas(t *testing.T) {
	dir := dir + "-again"
	killed, err := begin(dir, "-nodes", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := killed.await("the nodes start"); err != nil {
		t.Error(err)
	}
	killed.Kill()
	next, err := begin(dir, "-nodes", "1")
	if err != nil {
		t.Fatal(err)
	}
	if err := next.await("export KUBECONFIG"); err != nil {
		t.Error(err)
	}
	if nothingIsLeft(dir) == nil {
		t.Error("nothing is seen of a cluster that runs")
	}
	if err := next.end(); err != nil {
		t.Error(err)
	}
	if err := nothingIsLeft(dir); err != nil {
		t.Error(err)
	}
	after, err := machine()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range slices.Sorted(maps.Keys(untouched)) {
		if after[name] != untouched[name] {
			t.Errorf("%s was %q, and is %q", name, untouched[name], after[name])
		}
	}
}

// A folder that is not of a cluster stays as it is, whoever names it.
func TestACommandRemovesNoFolderOfOthers(t *testing.T) {
	others := t.TempDir()
	file := filepath.Join(others, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, command := range []string{"up", "down"} {
		out, err := exec.CommandContext(t.Context(), filepath.Join(*parts, "cluster"), command, "-dir", others, "-parts", *parts).CombinedOutput()
		if err == nil || !strings.Contains(string(out), "no folder of a cluster") {
			t.Errorf("%s: %v, %s", command, err, out)
		}
		if _, err := os.Stat(file); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Remove(others + ".lock"); err != nil {
		t.Error(err)
	}
}

// untouched is the machine before the cluster of all tests.
var untouched map[string]string

// expires is what counts down in the list of routes.
var expires = regexp.MustCompile(` expires \d+sec`)

// machine is what a cluster could change: settings of the kernel, links, routes, mounts and rules of the firewall.
func machine() (found map[string]string, err error) {
	found = map[string]string{}
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
			return nil, err
		}
	}
	libraries, err := filepath.Glob(*parts + "/deb/usr/lib/*-linux-gnu")
	if err != nil {
		return nil, err
	}
	for _, command := range [][]string{
		{"ip", "-o", "link"}, {"ip", "route", "show", "table", "all"}, {"cat", "/proc/self/mounts"},
		{*parts + "/deb/usr/sbin/nft", "--stateless", "list", "ruleset"},
	} {
		listed := exec.Command(command[0], command[1:]...)
		listed.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
		out, err := listed.CombinedOutput()
		if err != nil {
			return nil, fmt.Errorf("%q: %w: %s", command, err, out)
		}
		found[strings.Join(command, " ")] = expires.ReplaceAllString(string(out), "")
	}
	return found, nil
}
