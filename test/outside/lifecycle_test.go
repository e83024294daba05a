package outside

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/pkg/election"
	"github.com/eventd/eventd/pkg/lifecycle"
)

// startReplica runs a component that needs leadership, and reports when it starts.
func startReplica(t *testing.T, client kubernetes.Interface, identity string, leads chan<- string) (stop func()) {
	t.Helper()
	electionOptions := election.DefaultOptions()
	electionOptions.RetryPeriod = 20 * time.Millisecond
	electionOptions.Lock = &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: "default", Name: "controller"},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	elector, err := election.New(electionOptions)
	if err != nil {
		t.Fatal(err)
	}
	options := lifecycle.DefaultOptions()
	options.Elector = elector
	options.Components = []lifecycle.Component{{Name: "controller", NeedsLeadership: true, Run: func(ctx context.Context) error {
		leads <- identity
		<-ctx.Done()
		return nil
	}}}
	manager, err := lifecycle.New(options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- manager.Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
}

func TestComponentMovesToTheNextLeader(t *testing.T) {
	client := fake.NewClientset()
	leads := make(chan string)
	stop := startReplica(t, client, "a", leads)
	if leader := <-leads; leader != "a" {
		t.Errorf("%s leads", leader)
	}
	defer startReplica(t, client, "b", leads)()
	stop()
	if leader := <-leads; leader != "b" {
		t.Errorf("%s leads", leader)
	}
}
