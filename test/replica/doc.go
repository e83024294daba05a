// Package replica runs the built eventd in tests, as it runs in a cluster: as a
// process with the ServiceAccount and the rights of deploy/. Tests see its endpoint,
// its metrics, its log and its exit code.
//
//	func TestMain(m *testing.M) { os.Exit(replica.Runner(testenv.Runner(m)).Run()) }
//
//	func TestX(t *testing.T) {
//		cluster := testenv.Shared(t)
//		r := replica.Run(t, cluster, replica.Options{Flags: []string{"--leader-elect=false"}})
//		client := kubernetes.NewForConfigOrDie(r.Config(replica.Reporter(t, cluster, namespace)))
//		...
//		r.Terminate(t)
//	}
//
// Whoever starts a process ends it, except for those of Run, which end with the test.
package replica
