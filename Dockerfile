# The image has one file, the binary: no shell, no C library, no package manager.
#
#   docker build --build-arg VERSION=v1.2.3 --build-arg COMMIT=$(git rev-parse HEAD) -t eventd:v1.2.3 .
#
# The binary is the same, byte for byte, that "make static" makes of the same
# source with the same Go and the same VERSION and COMMIT (docs/deployment.md). Go
# is named to the patch, so that the image is the same next year; --build-arg
# GO_VERSION takes another, and --build-arg GO_IMAGE=golang:1.26.8@sha256:... pins the
# image to a digest that you have verified: only the binary is taken from it, which
# "make static" checks to the byte. It is compiled on the machine that builds, for the
# platform that is asked for.
ARG GO_VERSION=1.26.8
ARG GO_IMAGE=golang:${GO_VERSION}
FROM --platform=$BUILDPLATFORM ${GO_IMAGE} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY hack/build.sh hack/static.sh hack/
COPY cmd cmd
COPY internal internal
COPY pkg pkg
ARG TARGETARCH
ARG VERSION
ARG COMMIT
RUN GOARCH=${TARGETARCH} VERSION=${VERSION} COMMIT=${COMMIT} hack/static.sh /eventd

FROM scratch
COPY --from=build /eventd /eventd
# Numbers: there is no file that would know a name.
USER 65532:65532
EXPOSE 10280
ENTRYPOINT ["/eventd"]
