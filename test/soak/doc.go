// Package soak runs sinks and whole pipelines against a real kube-apiserver with
// faults in between, and checks that every occurrence is accounted for and every
// count is exact: while writes are refused, answers are lost, requests hang, writers
// pause, the apiserver is away, and Events expire.
//
//	go test ./test/soak                    # each run in its short form
//	make soak                              # in full, with figures
//	make soak SOAKFLAGS='-seeds=10'        # with fewer seeds
//	go test -C test/soak -run 'Faults/trials/everything/mix,_seed_17$' -seed=17 -seeds=1
//
// Correct counts and bounds are asserted. Durations are printed only.
package soak
