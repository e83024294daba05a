//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// machineSysctls are those that a kubelet sets for all of the machine: a node gets files in their place.
var machineSysctls = []string{
	"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
	"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
}

// mountRoot makes an overlay of the machine's files the root of this mount namespace.
func (n node) mountRoot() error {
	found, err := hierarchies()
	if err != nil {
		return err
	}
	disk := n.file()
	root := filepath.Join(disk, "root")
	bind := func(from, to string, flags uintptr) mount {
		return mount{from, filepath.Join(root, to), "", syscall.MS_BIND | flags, ""}
	}
	for _, m := range []mount{
		{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE, ""},
		{"tmpfs", disk, "tmpfs", 0, "mode=755,size=" + n.Disk},
		{"overlay", root, "overlay", 0, fmt.Sprintf("lowerdir=/,upperdir=%s,workdir=%s", filepath.Join(disk, "upper"), filepath.Join(disk, "work"))},
		bind("/dev", "/dev", syscall.MS_REC),
		bind(n.Parts, n.Parts, 0),
		bind(n.Dir, n.Dir, 0),
		// Images are overlays, which are not possible on one; and the kubelet has to see the size of its disk.
		bind(filepath.Join(disk, "containerd"), "/var/lib/containerd", 0),
		bind(filepath.Join(disk, "kubelet"), "/var/lib/kubelet", 0),
		{"proc", filepath.Join(root, "proc"), "proc", 0, ""},
		{"sysfs", filepath.Join(root, "sys"), "sysfs", 0, ""},
		{"tmpfs", filepath.Join(root, "run"), "tmpfs", 0, "mode=755"},
	} {
		if err := m.do(disk); err != nil {
			return err
		}
	}
	if err := mountCgroups(root, found); err != nil {
		return err
	}
	if err := n.shadow(root); err != nil {
		return err
	}
	return enterRoot(root)
}

// mount is a call of mount(2).
type mount struct {
	source, target, kind string
	flags                uintptr
	data                 string
}

func (m mount) do(disk string) error {
	if m.kind == "overlay" {
		for _, folder := range []string{"upper", "work", "containerd", "kubelet"} {
			if err := os.Mkdir(filepath.Join(disk, folder), 0o755); err != nil {
				return err
			}
		}
	}
	if err := os.MkdirAll(m.target, 0o755); err != nil {
		return err
	}
	if err := syscall.Mount(m.source, m.target, m.kind, m.flags, m.data); err != nil {
		return fmt.Errorf("mounting %s at %s: %w", m.source, m.target, err)
	}
	return nil
}

// shadow puts files in the place of those through which a node would change the machine, or see too much of it.
func (n node) shadow(root string) error {
	shadows := map[string][]byte{}
	for _, name := range machineSysctls {
		if value, err := os.ReadFile("/proc/sys/" + name); err == nil {
			shadows["/proc/sys/"+name] = value
		}
	}
	if n.Memory != "" {
		shadows["/proc/meminfo"] = fmt.Appendf(nil, "MemTotal: %s kB\nMemFree: %s kB\nMemAvailable: %s kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n", n.Memory, n.Memory, n.Memory)
	}
	for path, content := range shadows {
		file := n.file("shadow-" + filepath.Base(path))
		if err := os.WriteFile(file, content, 0o644); err != nil {
			return err
		}
		if err := syscall.Mount(file, filepath.Join(root, path), "", syscall.MS_BIND, ""); err != nil {
			return fmt.Errorf("mounting a file at %s: %w", path, err)
		}
	}
	return nil
}

// enterRoot makes root the root, and the former one disappear.
func enterRoot(root string) error {
	former := filepath.Join(root, "former")
	if err := os.MkdirAll(former, 0o755); err != nil {
		return err
	}
	if err := syscall.PivotRoot(root, former); err != nil {
		return fmt.Errorf("pivot_root: %w", err)
	}
	if err := os.Chdir("/"); err != nil {
		return err
	}
	if err := syscall.Unmount("/former", syscall.MNT_DETACH); err != nil {
		return err
	}
	// Volumes of Pods are mounted in one namespace and seen in another.
	return syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_SHARED, "")
}
