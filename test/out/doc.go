// Package out runs the way out of eventd against a real kube-apiserver and etcd: what is stored, and
// what reaches a reader, over compactions, restarts and a restore from a backup.
//
//	EVENTD_CONTROLPLANE=$(test/controlplane/build.sh) go test ./test/out -v
package out
