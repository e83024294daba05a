#!/bin/sh
# Says what this machine lacks for a cluster of real nodes, and fails, or says nothing.
set -eu

lacks() {
	echo "• a cluster of real nodes needs $1; make run shows eventd on any machine" >&2
	exit 1
}

[ "$(uname)" = Linux ] || lacks Linux
[ "$(id -u)" = 0 ] || lacks root
for tool in apt-get dpkg-deb flock ip nsenter unshare; do
	command -v $tool >/dev/null || lacks "$tool, of Debian or Ubuntu"
done
unshare --mount --pid --net --ipc --uts --fork true 2>/dev/null || lacks 'namespaces of its own'
grep -q overlay /proc/filesystems || lacks 'overlays (CONFIG_OVERLAY_FS)'
found=
for cgroup in $(awk '$3 == "cgroup" || $3 == "cgroup2" { print $2 }' /proc/mounts); do
	probe=$cgroup/eventd-cluster-probe-$$
	mkdir "$probe" 2>/dev/null || lacks "to make cgroups in $cgroup"
	rmdir "$probe"
	found=1
done
[ -n "$found" ] || lacks cgroups
