// Package fakeapiserver is a kube-apiserver as one eventd, or several, need it: over HTTP/2 and TLS,
// in the memory of the process, and instant. It is for measurements in which a real one would take most of
// the machine. Tests use the real one (test/controlplane).
//
// It serves
//
//   - create, get, list, watch and patch of Events, in core/v1 and events.k8s.io/v1, which are forms of the
//     same objects, with resourceVersions and their conflicts;
//   - get, update, list and watch of Leases;
//   - TokenReviews of known tokens, and SubjectAccessReviews, which allow everything;
//   - the CA of its client certificates, as delegated authentication looks it up.
//
// Bodies are JSON or protobuf. Requests themselves are neither authenticated nor validated.
//
// Whoever starts a Server closes it. Its methods are safe for use by many goroutines.
package fakeapiserver
