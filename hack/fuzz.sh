#!/bin/sh
# Runs every fuzz target of the repository, one after another, for FUZZTIME each: go
# test takes one at a time. What one finds is written to testdata/fuzz of its package,
# and is a test from then on.
#
# FUZZTIME is a number of executions (2000x) unless it is set. With a duration (10m), go
# test before Go 1.27 may fail with "context deadline exceeded" when the time is over and
# nothing was found (https://go.dev/issue/75804).
set -eu

cd "$(dirname "$0")/.."
grep -rE --include='*_test.go' '^func Fuzz[A-Za-z0-9]*\(' cmd internal pkg | sort |
	sed -E 's|^(.*)/[^/]*:func (Fuzz[A-Za-z0-9]*)\(.*|\1 \2|' |
	while read -r package target; do
		echo "• $package $target, for ${FUZZTIME:=2000x}"
		"${GO:-go}" test "./$package" -run '^$' -fuzz "^$target\$" -fuzztime "$FUZZTIME" -fuzzminimizetime 5s
	done
