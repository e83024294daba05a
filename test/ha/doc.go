// Package ha runs three replicas of the built eventd against a real
// kube-apiserver, under a load that never ends, and takes away what they stand
// on: the leader in order, by SIGKILL and by SIGSTOP, the ways between the
// replicas and to the apiserver, the apiserver itself, and all replicas one after
// the other.
//
//	go test ./test/ha               # each scenario a few times
//	go test -C test/ha -soak        # in full, with figures in tables; make soak
//
// Every occurrence that the plain clients of the load post has a name of its own,
// and the ledger says which of them were acknowledged how; what the apiserver
// stores is watched, write by write, with who made it and which names it counts.
// The two are held against each other. What unmodified recorders were told is held
// against what their Events count, once client-go is done with all of it. What is
// asserted always is truth and boundedness; how fast something is, is printed, and
// asserted in full only.
package ha
