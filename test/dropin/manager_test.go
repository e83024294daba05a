package dropin

import (
	"context"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/kubernetes"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// A manager has several recorder providers, each of which starts a sink with the same
// broadcaster: its own, its cluster's, and that of its leader election. Every occurrence is
// counted once.
func TestManagerRecordsThroughEventd(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	config := controllerConfig(t, namespace, eventRights(""), rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"create", "get", "update"},
	})
	ctrl.SetLogger(klog.Background())

	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	broadcaster := pipeline.NewRecordBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: kubernetes.NewForConfigOrDie(config).CoreV1().Events("")})
	made, err := ctrl.NewManager(config, ctrl.Options{
		//lint:ignore SA1019 controller-runtime has no other option for a broadcaster
		EventBroadcaster:        broadcaster,
		Metrics:                 metricsserver.Options{BindAddress: "0"},
		LeaderElection:          true,
		LeaderElectionID:        "sample",
		LeaderElectionNamespace: namespace,
	})
	if err != nil {
		t.Fatal(err)
	}
	m := Manager{Manager: made, Broadcaster: broadcaster}
	const repeats = 3
	reported := make(chan struct{})
	err = m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		//lint:ignore SA1019 most controllers use it
		older := m.GetEventRecorderFor("sample-controller")
		newer := m.GetEventRecorder("example.com/sample-controller")
		for range repeats {
			older.Event(podIn(namespace), "Normal", "Older", "through GetEventRecorderFor")
			newer.Eventf(podIn(namespace), nil, "Normal", "Newer", "Reconciling", "through %s", "GetEventRecorder")
		}
		close(reported)
		<-ctx.Done()
		return nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Start(ctx) }()
	select {
	case <-reported:
	case err := <-ended:
		t.Fatal(err)
	}
	// The election records in its own goroutine.
	await.Until(t, "the election is reported", func() bool { return len(eventsByReason(t, namespace)["LeaderElection"]) > 0 })
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
	// The owner of the broadcaster shuts it down, not the manager.
	drain, stop := await.Context(t)
	defer stop()
	if err := broadcaster.ShutdownWithContext(drain); err != nil {
		t.Error(err)
	}

	events := eventsByReason(t, namespace)
	for reason, want := range map[string]int64{"Older": repeats, "Newer": repeats, "LeaderElection": 1} {
		for _, e := range events[reason] {
			if n := stored.Count(&e); n != want {
				t.Errorf("%s: count %d, want %d: %s", reason, n, want, e.Message)
			}
		}
	}
	if len(events["Older"]) != 1 || len(events["Newer"]) != 1 {
		t.Fatalf("stored %+v", events)
	}
	if newer := events["Newer"][0]; newer.Series == nil || newer.Action != "Reconciling" {
		t.Errorf("stored %+v", newer)
	}
}
