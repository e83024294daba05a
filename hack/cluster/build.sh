#!/bin/sh
# Collects what hack/cluster runs a cluster of, and prints the folder that has it: the components of
# Kubernetes, CoreDNS and kube-router from Go modules; containerd, runc, CNI plugins and what they and
# kube-proxy call from Debian. Nothing is installed. It needs Go, and apt-get and dpkg-deb of Debian.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
parts=$root/.cache/cluster-parts
deb=$parts/deb

# The versions that the cluster was tested with, in Debian 12. Of one that Debian has
# replaced since, such as by a fix of a vulnerability, the present one is taken.
packages='containerd=1.6.20~ds1-1+deb12u3 runc=1.1.5+ds1-1+deb12u1 containernetworking-plugins=1.1.1+ds1-3+b5
	nftables=1.0.6-2+deb12u2 iptables=1.8.9-2 ipset=7.17-1 busybox-static=1:1.35.0-4+deb12u1+b1'

say() { printf '%s\n' "• $*" >&2; }

# download PACKAGE...: those and what they depend on, as far as this machine has it not.
download() {
	apt-get -qq -o Acquire::Retries=3 -o Dir::Cache::archives="$deb.new/archives" -o APT::Sandbox::User=root \
		install --yes --download-only --no-install-recommends --reinstall "$@" >/dev/null
}

fetch_packages() {
	if [ "$(cat "$deb/packages" 2>/dev/null)" = "$packages" ]; then return; fi
	say 'downloading containerd, runc and what else is of Debian'
	rm -rf "$deb" "$deb.new"
	mkdir -p "$deb.new/archives/partial" "$deb.new/files"
	apt-get -qq -o Acquire::Retries=3 update >&2
	wanted=
	for package in $packages; do
		if ! apt-cache show "$package" >/dev/null 2>&1; then
			say "there is no $package any more: taking the present version"
			package=${package%%=*}
		fi
		wanted="$wanted $package"
	done
	# shellcheck disable=SC2086 # words
	download $wanted
	for archive in "$deb.new"/archives/*.deb; do dpkg-deb --extract "$archive" "$deb.new/files"; done
	# /sbin and /lib are links to folders of /usr on this machine, and not in packages.
	for folder in bin sbin lib; do
		if [ -d "$deb.new/files/$folder" ]; then
			mkdir -p "$deb.new/files/usr/$folder"
			cp -a "$deb.new/files/$folder/." "$deb.new/files/usr/$folder/"
			rm -rf "$deb.new/files/${folder:?}"
		fi
	done
	# Debian chooses these at the installation.
	for name in iptables iptables-save iptables-restore ip6tables ip6tables-save ip6tables-restore; do
		ln -sf xtables-nft-multi "$deb.new/files/usr/sbin/$name"
	done
	printf '%s' "$packages" >"$deb.new/files/packages"
	mv "$deb.new/files" "$deb"
	rm -rf "$deb.new"
}

build_addons() {
	if [ ! -x "$parts/kube-router" ]; then say 'building CoreDNS and kube-router (minutes)'; fi
	CGO_ENABLED=0 GOWORK=off GOFLAGS='-mod=readonly -trimpath -buildvcs=false' \
		go build -C "$here/addons" -ldflags '-s -w' -o "$parts/" ./coredns github.com/cloudnativelabs/kube-router/v2/cmd/kube-router
}

pack_images() {
	mkdir -p "$parts/images"
	busybox=$deb/usr/bin/busybox
	links=$("$busybox" --list | grep -v '^busybox$' | sed 's#.*#/bin/&->/bin/busybox#')
	# shellcheck disable=SC2086 # words
	"$parts/cluster" image -o "$parts/images/busybox.tar" -name docker.io/library/busybox:1.35 "$busybox=/bin/busybox" $links
	# What holds the namespaces of a Pod has only to be there.
	"$parts/cluster" image -o "$parts/images/pause.tar" -name docker.io/library/busybox:pause -entrypoint '/bin/busybox sleep 2147483647' "$busybox=/bin/busybox"
	"$parts/cluster" image -o "$parts/images/coredns.tar" -name coredns.local/coredns:v1 -entrypoint /coredns "$parts/coredns=/coredns"
}

"$here/possible.sh"
mkdir -p "$parts"
exec 9>"$parts.lock"
flock 9 # two would replace files of each other
fetch_packages
controlplane=$("$root/test/controlplane/build.sh")
node=$("$root/test/controlplane/build.sh" node)
build_addons
CGO_ENABLED=0 GOFLAGS=-trimpath go build -C "$root" -o "$parts/cluster" ./hack/cluster
for file in "$controlplane" "$(dirname "$controlplane")/kubectl" "$node"; do ln -f "$file" "$parts/"; done
cp --remove-destination "$here/coredns.yaml" "$parts/"
pack_images
printf '%s\n' "$parts"
