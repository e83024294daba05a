// Package deploy has the tests of what is applied to a cluster: that a
// kube-apiserver takes every manifest of deploy/, that the eventd of the image
// works with the flags and the rights that it is given there, and that it needs
// every one of these rights.
package deploy
