#!/bin/sh
# Runs every fuzz target of the repository, one after another, for FUZZTIME each. The tests of a package are linked
# once for all of its targets. What a target finds is written to testdata/fuzz of its package, and is a test from then on.
#
# FUZZTIME is a number of executions (2000x) unless it is set. They are too few to be guided by coverage, for which
# every dependency is compiled once more: that is for a duration (10m). With one, Go before 1.27 may fail with
# "context deadline exceeded" when the time is over and nothing was found (https://go.dev/issue/75804).
set -eu

cd "$(dirname "$0")/.."
root=$PWD
: "${FUZZTIME:=2000x}"
case $FUZZTIME in *x) guided= ;; *) guided=-fuzz=. ;; esac
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
grep -rlE --include='*_test.go' '^func Fuzz' cmd internal pkg | xargs -n 1 dirname | sort -u >"$work/packages"
while read -r package; do
	"${GO:-go}" test "./$package" -vet=off -c $guided -o "$work/fuzz"
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9]*' "$package"/*_test.go | cut -c6- | sort); do
		echo "• $package $target, for $FUZZTIME"
		(cd "$package" && "$work/fuzz" -test.run='^$' -test.fuzz="^$target\$" -test.fuzztime="$FUZZTIME" \
			-test.fuzzminimizetime=5s -test.fuzzcachedir="$root/.cache/fuzz/$package")
	done
done <"$work/packages"
