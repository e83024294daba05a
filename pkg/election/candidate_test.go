package election

import (
	"context"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

const leaseName = "eventd"

// contest is an election in a namespace of a real apiserver.
type contest struct {
	t         *testing.T
	cluster   *testenv.ControlPlane
	config    *rest.Config // of its candidates
	namespace string
	leases    coordinationv1client.LeaseInterface // for the administrator
}

func newContest(t *testing.T) contest {
	t.Helper()
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	return contest{t, cluster, cluster.Config(), namespace, kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1().Leases(namespace)}
}

func (c contest) client() rest.Interface {
	c.t.Helper()
	client, err := NewLeaseClient(c.config, time.Second)
	if err != nil {
		c.t.Fatal(err)
	}
	return client
}

func (c contest) lock(identity string) *LeaseLock {
	return newLeaseLock(c.client(), c.namespace, identity)
}

// foreignLock is a lock of client-go for a Lease.
func (c contest) foreignLock(name, identity string) *resourcelock.LeaseLock {
	return &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: c.namespace, Name: name}, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
		Client: kubernetes.NewForConfigOrDie(c.cluster.Config()).CoordinationV1(),
	}
}

func newLeaseLock(client rest.Interface, namespace, identity string) *LeaseLock {
	return &LeaseLock{
		Namespace: namespace, Name: leaseName, Holder: identity, Client: client,
		Announce: func() Announcement { return announcementOf(identity) },
	}
}

// candidate is an elector in a contest.
type candidate struct {
	*Elector
	t      *testing.T
	cancel context.CancelFunc
	ended  chan error
}

// start starts a candidate, which ends with the test.
func (c contest) start(identity string, change ...func(*Options)) *candidate {
	c.t.Helper()
	lock := c.lock(identity)
	o := options(lock)
	o.Watch = (&LeaseWatch{Namespace: c.namespace, Name: leaseName, Client: lock.Client}).Watch
	for _, change := range change {
		change(&o)
	}
	e, err := New(o)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.t.Context()))
	started := &candidate{e, c.t, cancel, make(chan error, 1)}
	var running sync.WaitGroup
	running.Go(func() {
		started.ended <- e.Run(ctx, func(ctx context.Context) error {
			<-ctx.Done()
			return nil
		})
	})
	c.t.Cleanup(func() {
		cancel()
		running.Wait()
	})
	return started
}

// lead starts a candidate, and returns when it leads.
func (c contest) lead(identity string, change ...func(*Options)) *candidate {
	c.t.Helper()
	started := c.start(identity, change...)
	started.awaitLeader(identity)
	return started
}

// stop ends the candidate. Run must return no error.
func (c *candidate) stop() {
	c.t.Helper()
	c.cancel()
	if err := <-c.ended; err != nil {
		c.t.Error(err)
	}
}

// awaitLeader waits until the candidate, or another, is its leader.
func (c *candidate) awaitLeader(identity string) {
	c.t.Helper()
	await.Until(c.t, c.Identity()+" sees the leader "+identity, func() bool { return c.Leader().Identity == identity })
}
