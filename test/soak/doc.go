// Package soak puts sinks and whole pipelines in front of a real kube-apiserver
// with faults between the two, for as long as there is time, and looks whether
// every occurrence is accounted for and every count is true: while writes are
// refused, answers are lost, requests hang, writers pause, the apiserver is away,
// and Events expire.
//
//	go test ./test/soak                    # each run in its short form
//	make soak                              # in full, with figures in tables
//	make soak SOAKFLAGS='-seeds=10'        # with fewer seeds
//	go test -C test/soak -run 'Faults/trials/everything/mix,_seed_17$' -seed=17 -seeds=1
//
// What is asserted is truth and boundedness. How fast something is, is printed
// only.
package soak
