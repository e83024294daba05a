#!/bin/sh
# Builds the collector, or the one in another folder of the repository, and prints the path of the
# binary as the last line of stdout. Other commands of the module, such as the broker kafka, are
# built beside it. Progress goes to stderr. The binaries are kept in
# <repository>/.cache/collector-<hash of their inputs>/ and not built again while they are
# unchanged. Several invocations may run at once: the binaries are moved into place whole. Needs a
# POSIX shell and Go; Linux and macOS.
#
#   test/collector/build.sh [hack/bench/collector]
set -eu

here=$(CDPATH='' cd -- "$(dirname -- "$0")" && pwd)
repository=$(CDPATH='' cd -- "$here/../.." && pwd)
cache=$repository/.cache
cd "$repository/${1:-test/collector}"

# A workspace or vendor setting of the surrounding repository is not for this module.
GOWORK=off
GOFLAGS='-mod=readonly -trimpath'
export GOWORK GOFLAGS

sha256() { if command -v sha256sum >/dev/null; then sha256sum; else shasum -a 256; fi; }

# Everything that decides what comes out of the build.
inputs() {
	go env GOVERSION GOOS GOARCH
	cat "$here/build.sh" go.mod go.sum
	find . -name '*.go' | LC_ALL=C sort | xargs cat
}

binary=$cache/collector-$(inputs | sha256 | cut -c1-16)/collector
if [ -x "$binary" ]; then
	touch "$(dirname "$binary")"
	echo "$binary"
	exit 0
fi

mkdir -p "$cache"
# Binaries of inputs that nobody has built or used in a week.
find "$cache" -maxdepth 1 -type d -name 'collector-*' -mtime +7 -exec rm -rf {} +
work=$(mktemp -d "$cache/collector-build.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# There is nothing in it that needs C.
CGO_ENABLED=0 OUT=$work/ "$repository/hack/build.sh" 'the OpenTelemetry collector' -buildvcs=false -ldflags '-s -w' ./... >&2
mkdir -p "$(dirname "$binary")"
mv -f "$work/collector" "$binary.new"
for other in "$work"/*; do
	[ -e "$other" ] && mv -f "$other" "$(dirname "$binary")/"
done
mv -f "$binary.new" "$binary" # last: its being there says that the build is done
echo "$binary"
