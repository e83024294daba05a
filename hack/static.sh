#!/bin/sh
# Builds eventd as it is in its image, or another command as it is in a release: without
# a C library, and with the same bytes wherever the same source is built by the same
# Go for the same machine.
#
#   [VERSION=v1.2.3] [COMMIT=HASH] [GOOS=linux] [GOARCH=arm64] hack/static.sh FILE [./cmd/eventd]
set -eu

file=$1
package=${2:-./cmd/eventd}
case $file in
/*) ;;
*) file=$PWD/$file ;;
esac
cd "$(dirname "$0")/.."

# What would differ from build to build is left out: the folder (-trimpath), the
# state of the checkout (-buildvcs), the keys of the build cache (-buildid).
# So are variants of processors and of Go that the environment may ask for. The version
# and the commit are what is said.
stamp=k8s.io/component-base/version
export GOOS="${GOOS:-linux}" CGO_ENABLED=0 GOFLAGS= GOWORK=off GOAMD64=v1 GOARM64=v8.0 GOFIPS140=off
OUT=$file hack/build.sh "${package##*/} for ${GOOS}${GOARCH:+/$GOARCH}" -trimpath -buildvcs=false \
	-ldflags "-s -w -buildid= ${VERSION:+-X $stamp.gitVersion=$VERSION} ${COMMIT:+-X $stamp.gitCommit=$COMMIT}" "$package"
