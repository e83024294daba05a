//go:build linux

package main

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

const cgroupRoot = "/sys/fs/cgroup"

// cgroup is the one that has those of all nodes, in each hierarchy. Clusters in other folders have others.
func (c cluster) cgroup() string {
	return fmt.Sprintf("eventd-cluster-%x", sha256.Sum256([]byte(c.Dir)))[:len("eventd-cluster-")+8]
}

// hierarchy is a mounted hierarchy of cgroups.
type hierarchy struct {
	path string
	// options are those of its mount. They are empty for cgroup v2.
	options string
}

// hierarchies are those of this machine: one of cgroup v2, or one for each controller.
func hierarchies() (found []hierarchy, err error) {
	mounts, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines(string(mounts)) {
		fields := strings.Fields(line)
		switch path, kind, options := fields[1], fields[2], fields[3]; {
		case kind == "cgroup2":
			found = append(found, hierarchy{path: path})
		case kind == "cgroup":
			chosen := slices.DeleteFunc(strings.Split(options, ","), func(o string) bool {
				return slices.Contains([]string{"rw", "ro", "nosuid", "nodev", "noexec", "relatime", "xattr"}, o) || strings.HasPrefix(o, "release_agent")
			})
			if slices.ContainsFunc(chosen, func(o string) bool { return strings.HasPrefix(o, "name=") }) {
				chosen = append(chosen, "none")
			}
			found = append(found, hierarchy{path: path, options: strings.Join(chosen, ",")})
		}
	}
	if len(found) == 0 {
		return nil, errors.New("no cgroups are mounted")
	}
	return found, nil
}

// enterCgroup waits until the network of the node is there, moves this process into the node's cgroup and makes
// that the root of all cgroups that the node sees.
func enterCgroup(n node) error {
	if _, err := os.NewFile(3, "network").Read(make([]byte, 1)); err != nil {
		return err
	}
	found, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range found {
		if err := h.enter(filepath.Join(h.path, n.cgroup()), filepath.Join(h.path, n.cgroup(), n.name())); err != nil {
			return fmt.Errorf("%s: %w", h.path, err)
		}
	}
	// A namespace belongs to the thread. The thread that executes a program is the only one that is left.
	runtime.LockOSThread()
	if err := syscall.Unshare(syscall.CLONE_NEWCGROUP); err != nil {
		return fmt.Errorf("cgroup namespace: %w", err)
	}
	return syscall.Exec("/proc/self/exe", append([]string{"cluster"}, stage(nodeInitStage, n)...), os.Environ())
}

// enter makes these cgroups, of which each is in the one before, and moves this process into the last.
func (h hierarchy) enter(cgroups ...string) error {
	for i, cgroup := range cgroups {
		if err := os.Mkdir(cgroup, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
		// A new cgroup has no processors and no memory nodes.
		for _, file := range []string{"cpuset.cpus", "cpuset.mems"} {
			inherited, err := os.ReadFile(filepath.Join(filepath.Dir(cgroup), file))
			if err != nil || h.options == "" {
				continue
			}
			if err := os.WriteFile(filepath.Join(cgroup, file), inherited, 0o644); err != nil {
				return err
			}
		}
		if h.options == "" && i < len(cgroups)-1 {
			if err := enableControllers(cgroup); err != nil {
				return err
			}
		}
	}
	return os.WriteFile(filepath.Join(cgroups[len(cgroups)-1], "cgroup.procs"), []byte("0"), 0o644)
}

// mountCgroups mounts all hierarchies below root, whose roots are the cgroups of this node.
func mountCgroups(root string, found []hierarchy) error {
	if len(found) == 1 && found[0].options == "" {
		return mountUnified(filepath.Join(root, cgroupRoot))
	}
	if err := syscall.Mount("tmpfs", filepath.Join(root, cgroupRoot), "tmpfs", 0, "mode=755"); err != nil {
		return err
	}
	for _, h := range found {
		kind, at := "cgroup", filepath.Join(root, h.path)
		if h.options == "" {
			kind = "cgroup2"
		}
		if err := os.MkdirAll(at, 0o755); err != nil {
			return err
		}
		if err := syscall.Mount(kind, at, kind, 0, h.options); err != nil {
			return fmt.Errorf("mounting %s at %s: %w", kind, at, err)
		}
	}
	return nil
}

// mountUnified mounts cgroup v2, in which a cgroup has processes or controllers of others, not both.
func mountUnified(at string) error {
	if err := syscall.Mount("cgroup2", at, "cgroup2", 0, ""); err != nil {
		return err
	}
	init := filepath.Join(at, "init")
	if err := os.Mkdir(init, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(init, "cgroup.procs"), []byte("0"), 0o644); err != nil {
		return err
	}
	return enableControllers(at)
}

// enableControllers lets the cgroups in one of cgroup v2 have the controllers that it has itself.
func enableControllers(cgroup string) error {
	controllers, err := os.ReadFile(filepath.Join(cgroup, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, controller := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(cgroup, "cgroup.subtree_control"), []byte("+"+controller), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// removeCgroups removes the cgroups of all nodes, or of one. Their processes have ended, or are about to.
func (c cluster) removeCgroups(node ...string) error {
	found, err := hierarchies()
	if err != nil {
		return err
	}
	for _, h := range found {
		var cgroups []string
		err := filepath.WalkDir(filepath.Join(append([]string{h.path, c.cgroup()}, node...)...), func(path string, entry fs.DirEntry, err error) error {
			if err == nil && entry.IsDir() {
				cgroups = append(cgroups, path)
			}
			return err
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, cgroup := range slices.Backward(cgroups) { // a cgroup is listed before those in it
			if err := afterTheKilled(syscall.EBUSY, func() error { return syscall.Rmdir(cgroup) }); err != nil {
				return fmt.Errorf("removing %s: %w", cgroup, err)
			}
		}
	}
	return nil
}

// afterTheKilled removes something when the processes that are killed have ended: while one is there, that fails so.
func afterTheKilled(fails syscall.Errno, remove func() error) error {
	deadline := time.Now().Add(time.Minute)
	for {
		err := remove()
		if !errors.Is(err, fails) || time.Now().After(deadline) {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}
