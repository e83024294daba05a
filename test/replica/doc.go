// Package replica runs the built eventd in tests, as it is run in a cluster: a
// process of its own, with the ServiceAccount and the rights of deploy/, that is
// known by its endpoint, its metrics, its log and its end.
//
//	func TestMain(m *testing.M) { os.Exit(replica.Runner(testenv.Runner(m)).Run()) }
//
//	func TestX(t *testing.T) {
//		credentials := replica.Deploy(t, cluster)
//		r, err := replica.Start(t.Context(), replica.Options{Kubeconfig: ..., Dir: t.TempDir()})
//		...
//		client := kubernetes.NewForConfigOrDie(r.Config(replica.Reporter(t, cluster, namespace)))
//		...
//		code, err := r.Signal(ctx, syscall.SIGTERM)
//	}
//
// Whoever starts a process owes its end: Signal, or Kill.
package replica
