// Package ha runs three replicas of the built eventd against a real kube-apiserver
// under continuous load, and removes what they depend on: the leader by SIGTERM,
// SIGKILL and SIGSTOP, the connections between the replicas and to the apiserver,
// the apiserver itself, and all replicas one after the other. It also runs them beside
// those of the previous release, which test/upgrade builds.
//
//	go test ./test/ha               # each scenario once or twice
//	go test -C test/ha -soak        # in full, with figures; make soak
//	EVENTD_PREVIOUS=FILE go test ./test/ha -run 'Upgrade|Releases' # beside the eventd in a file
//
// Each occurrence that the plain clients of the load post has a name of its own, and
// the ledger has the acknowledgement of each. The journal has each write that the
// apiserver stores, with its writer and the names that it counts. The tests compare
// the two. They compare the counts of the Events of unmodified recorders with what
// these have recorded, once client-go has sent all of it. Correct counts and bounds
// are always asserted; durations are printed, and asserted in full runs only.
package ha
