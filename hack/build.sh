#!/bin/sh
# Shows how far a long "go build" is.
#
#   [OUT=DIR/] hack/build.sh WHAT [BUILD FLAG ...] PACKAGE ...
#
# WHAT is what the progress is about. With OUT the commands among the packages
# go there; without it everything is only compiled, so that a "go test" or
# "go vet" that follows finds it done. Nothing is shown if there is little to do.
set -eu

what=$1
shift

# progress TEXT: on a terminal one line that is written over, else a new line
# every 15 seconds.
ticks=0
progress() {
	if [ -t 2 ]; then
		printf '\r\033[K%s' "$1" >&2
	elif [ $((ticks % 15)) -eq 0 ]; then
		printf '%s\n' "$1" >&2
	fi
	ticks=$((ticks + 1))
}

work=$(mktemp -d)
build=
clean_up() {
	if [ -n "$build" ]; then kill "$build" 2>/dev/null || true; fi
	if [ -t 2 ]; then printf '\r\033[K' >&2; fi
	rm -rf "$work"
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP

# A package that is not stale is not compiled again, and so does not count.
total=$(go list -deps -f '{{if .Stale}}x{{end}}' "$@" | grep -c x || true)
: >"$work/log"
# To collect garbage less often saves compilers a sixth of their CPU.
export GOGC="${GOGC:-400}"
# -v says which package is being compiled. "go build" would link the commands, too.
if [ -n "${OUT:-}" ]; then
	go build -v -o "$OUT" "$@" 2>"$work/log" &
else
	go list -v -export -f '' "$@" 2>"$work/log" >/dev/null &
fi
build=$!
started=$(date +%s)
while kill -0 "$build" 2>/dev/null; do
	elapsed=$(($(date +%s) - started))
	done=$(wc -l <"$work/log" | tr -d ' ')
	if [ "$elapsed" -ge 3 ]; then
		if [ "$done" -lt "$total" ]; then
			progress "building $what: $done of $total packages, ${elapsed}s"
		else
			progress "building $what: linking, ${elapsed}s"
		fi
	fi
	sleep 1
done
if ! wait "$build"; then
	build=
	grep -v '^[A-Za-z0-9_./-]*$' "$work/log" >&2 || true
	exit 1
fi
build=
