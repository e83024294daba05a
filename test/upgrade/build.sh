#!/bin/sh
# Builds the eventd of the previous release, as it is deployed, and prints its path as the
# last line of stdout. Progress goes to stderr. The file "previous" names the commit. The
# binary is kept in <repository>/.cache/previous-<hash of its inputs>/ and not built again
# while they are unchanged. Needs a POSIX shell, Go, git and the history of the repository.
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
root=$(CDPATH='' cd -- "$here/../.." && pwd)
cache=$root/.cache

say() { printf '%s\n' "$*" >&2; }

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

commit=$(grep -v '^#' "$here/previous" || true)
case $commit in
*[!0-9a-f]* | '')
	say "test/upgrade/previous names no commit: '$commit'"
	exit 1
	;;
esac

# CGO_ENABLED=0 and -trimpath: packages that have not changed since come from the build
# cache, wherever they were compiled as they are deployed.
export CGO_ENABLED=0 GOWORK=off GOFLAGS=
hash=$({
	echo "$commit"
	go env GOVERSION GOOS GOARCH
	cat "$here/build.sh"
} | sha256 | cut -c1-16)
dir=$cache/previous-$hash
binary=$dir/eventd
if [ -x "$binary" ]; then
	touch "$dir" # says "in use" below
	printf '%s\n' "$binary"
	exit 0
fi

if ! git -C "$root" cat-file -e "$commit^{commit}" 2>/dev/null; then
	say "The previous release is commit $commit (test/upgrade/previous), and this clone does not have it."
	say "If it is a shallow clone, get the commit: git fetch --unshallow, or git fetch --depth=1 origin $commit"
	say 'Without git, set EVENTD_PREVIOUS to an eventd of that release.'
	exit 1
fi

mkdir -p "$cache"
work=$(mktemp -d "$cache/previous-build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
mkdir "$work/source"
git -C "$root" archive --output="$work/source.tar" "$commit"
tar -xf "$work/source.tar" -C "$work/source"
cd "$work/source"
stamp=k8s.io/component-base/version
OUT=$work/eventd "$root/hack/build.sh" 'the eventd of the previous release' -trimpath -buildvcs=false \
	-ldflags "-X $stamp.gitVersion=v0.0.0-previous -X $stamp.gitCommit=$commit" ./cmd/eventd >&2
mkdir -p "$dir"
mv -f "$work/eventd" "$binary" # whole, also if another build does the same
# Binaries of inputs that nobody has asked for in a week.
find "$cache" -maxdepth 1 -type d -name 'previous-*' -mtime +7 -exec rm -rf {} + || true
printf '%s\n' "$binary"
