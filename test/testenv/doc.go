// Package testenv gives tests a real kube-apiserver: the local control plane of
// test/controlplane, started once per test binary.
//
//	func TestMain(m *testing.M) { os.Exit(testenv.Main(m)) }
//
//	func TestSomething(t *testing.T) {
//		cluster := testenv.Shared(t)
//		namespace := cluster.Namespace(t)
//		client := kubernetes.NewForConfigOrDie(cluster.Config())
//		...
//	}
//
// A package that checks for leaked goroutines wraps it the other way round:
//
//	func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }
//
// The contract: a control plane that cannot be started fails the tests; only -short
// skips them. The process is stopped, and its directory removed, before Main returns;
// if the test binary dies instead, the process does the same by itself. No goroutine
// outlives Stop. All methods of ControlPlane may be called from several goroutines.
//
// The binary is the one that the environment variable EVENTD_CONTROLPLANE
// names, else the one that test/controlplane/build.sh builds (minutes, the
// first time) or has built.
//
// There are no controllers in this control plane: see test/controlplane/README.md.
package testenv
