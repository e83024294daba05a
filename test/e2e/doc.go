// Package e2e holds the tests of eventd as it is run: the built binary with the
// rights of deploy/, between real clients and a real kube-apiserver.
package e2e
