#!/bin/sh
# Builds the control plane and prints the path of the binary as the last line
# of stdout; a kubectl of its version is built beside it. With the argument "node" it does so
# with what nodes and controllers run, which only a cluster needs. Progress goes to stderr. The binaries are kept in
# <repository>/.cache/controlplane-<hash of their inputs>/ and not built again
# while their inputs are unchanged. Needs a POSIX shell and Go; Linux and macOS.
#
# Several invocations may run at once: the binary is moved into place whole, and
# a lock makes the later ones wait for the first. The lock only saves work; if
# two should ever hold it, the same binary is built twice.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
cache=$(CDPATH='' cd -- "$here/../.." && pwd)/.cache
cd "$here"

# A workspace or vendor setting of the surrounding repository is not for this
# module.
GOWORK=off
GOFLAGS='-mod=readonly -trimpath'
CGO_ENABLED=0 # with this and -trimpath, the libraries are those of eventd, compiled once for both
GOGC=${GOGC:-400} # saves the compiler a sixth of its CPU
export GOWORK GOFLAGS CGO_ENABLED GOGC

say() { printf '%s\n' "$*" >&2; }

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# Everything that decides what comes out of the build.
inputs() {
	go env GOVERSION GOOS GOARCH CGO_ENABLED
	for file in build.sh go.mod go.sum *.go kubectl/*.go node/*.go; do
		case $file in *_test.go) continue ;; esac
		[ -e "$file" ] || continue # hack/versions copies all but node
		printf '%s\n' "$file"
		cat "$file"
	done
}

hash=$(inputs | sha256 | cut -c1-16)
dir=$cache/controlplane-$hash
case ${1:-controlplane} in
controlplane) what='control plane (kube-apiserver and etcd)' programs='. ./kubectl' ;;
node) what='components of a node (kubelet, kube-proxy) and controllers' programs=./node ;;
*)
	say 'usage: build.sh [node]'
	exit 2
	;;
esac
binary=$dir/${1:-controlplane}
lock=$dir-${1:-controlplane}.lock

found() {
	[ -x "$binary" ] || return 1
	touch "$dir" # says "in use" to prune
	printf '%s\n' "$binary"
}

# Binaries of inputs that nobody has asked for in a week.
prune() {
	find "$cache" -maxdepth 1 -type d -name 'controlplane-*' -mtime +7 -exec rm -rf {} + || true
}

elapsed() {
	seconds=$(($(date +%s) - started))
	if [ "$seconds" -lt 60 ]; then echo "${seconds}s"; else echo "$((seconds / 60))m$((seconds % 60))s"; fi
}

# progress TEXT: on a terminal one line that is written over, every 3 seconds;
# else a new line every 15 seconds.
ticks=0
progress() {
	if [ -t 2 ]; then
		printf '\r\033[K%s' "$1" >&2
	elif [ $((ticks % 5)) -eq 0 ]; then
		say "$1"
	fi
	ticks=$((ticks + 1))
	sleep 3
}
progress_end() { if [ -t 2 ]; then printf '\r\033[K' >&2; fi; }

# The lock is a folder: making one is atomic everywhere. Its owner touches it
# while it builds; one that has not been touched for a while was left by a
# build that was killed.
locked_by_other() {
	! mkdir "$lock" 2>/dev/null
}
abandoned() {
	owner=$(cat "$lock/pid" 2>/dev/null || true)
	if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then return 0; fi
	[ -n "$(find "$lock" -maxdepth 0 -mmin +2 2>/dev/null || true)" ]
}

mkdir -p "$cache"
if found; then exit 0; fi

started=$(date +%s)
while locked_by_other; do
	if abandoned; then
		rm -rf "$lock"
		continue
	fi
	progress "waiting for another build of the $what, $(elapsed)"
	if [ -x "$binary" ]; then
		progress_end
		found
		exit 0
	fi
done
progress_end

work=
build=
clean_up() {
	if [ -n "$build" ]; then kill "$build" 2>/dev/null || true; fi
	if [ -n "$work" ]; then rm -rf "$work"; fi
	rm -rf "$lock"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
echo $$ >"$lock/pid"
if found; then exit 0; fi # built between the look and the lock
work=$(mktemp -d "$cache/controlplane-build.XXXXXX")

say "building the $what; the first time takes minutes, later ones reuse it"
version=$(go list -m -f '{{.Version}}' k8s.io/kubernetes)
minor=${version#v*.}
minor=${minor%%.*}
major=${version#v}
major=${major%%.*}
pkg=k8s.io/component-base/version
ldflags="-s -w -X $pkg.gitVersion=$version -X $pkg.gitMajor=$major -X $pkg.gitMinor=$minor -X $pkg.gitTreeState=clean -X $pkg.gitCommit="

say "counting packages to compile (missing modules are downloaded first)"
total=$(go list -deps -f '{{if .Stale}}x{{end}}' $programs | grep -c x || true)

# No -trimpath: it would give every package a second entry in Go's build cache,
# when most are also compiled, without it, for the tests of this repository.
go build -v -buildvcs=false -ldflags "$ldflags" -o "$work/" $programs >"$work/log" 2>&1 &
build=$!
started=$(date +%s)
while kill -0 "$build" 2>/dev/null; do
	touch "$lock"
	count=$(wc -l <"$work/log" | tr -d ' ')
	if [ $((count + 2)) -lt "$total" ]; then # the last two are the programs themselves
		progress "building the $what: $count/$total packages, $(elapsed)"
	else
		progress "building the $what: linking, $(elapsed)"
	fi
done
progress_end
if ! wait "$build"; then
	build=
	say "building the $what failed:"
	grep -v '^[A-Za-z0-9_./-]*$' "$work/log" | tail -n 30 >&2 || true
	exit 1
fi
build=
mkdir -p "$dir"
if [ -e "$work/kubectl" ]; then mv -f "$work/kubectl" "$dir/"; fi
mv -f "$work/$(basename "$binary")" "$binary" # last: its being there says that the build is done
say "built in $(elapsed)"
prune
found
