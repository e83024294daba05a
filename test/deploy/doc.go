// Package deploy tests deploy/: a kube-apiserver accepts every manifest, the eventd of
// the image works with the flags and the rights of the manifests, and it needs every
// one of these rights.
package deploy
