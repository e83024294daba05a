#!/bin/sh
# Says which version this checkout is: its tag, or what git makes of the last one;
# before the first tag the go command's name for the commit, such as
# v0.0.0-20260131093000-0123456789ab. Nothing, if this is no checkout.
set -eu

cd "$(dirname "$0")/.."
if git describe --tags --match 'v[0-9]*' --dirty 2>/dev/null; then
	exit
fi
version=$(TZ=UTC git show -s --abbrev=12 --date=format-local:%Y%m%d%H%M%S --format=v0.0.0-%cd-%h 2>/dev/null) || exit 0
if [ -n "$(git status --porcelain --untracked-files=no)" ]; then
	version=$version-dirty
fi
echo "$version"
