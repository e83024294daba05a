package election

import (
	"context"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/test/testenv"
)

const leaseName = "eventd"

// patience is how long a test waits for something that happens soon.
const patience = 30 * time.Second

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
	t       *testing.T
	began   chan time.Time // of terms
	leaders chan Leader    // arguments of OnNewLeader
	cancel  context.CancelFunc
	ended   chan error
}

// start starts a candidate, which ends with the test.
func (c contest) start(identity string, change ...func(*Options)) *candidate {
	c.t.Helper()
	lock := c.lock(identity)
	o := options(lock)
	o.Watch = (&LeaseWatch{Namespace: c.namespace, Name: leaseName, Client: lock.Client}).Watch
	started := &candidate{t: c.t, began: make(chan time.Time, 10), leaders: make(chan Leader, 100), ended: make(chan error, 1)}
	o.OnNewLeader = func(l Leader) { started.leaders <- l }
	for _, change := range change {
		change(&o)
	}
	var err error
	if started.Elector, err = New(o); err != nil {
		c.t.Fatal(err)
	}
	var ctx context.Context
	ctx, started.cancel = context.WithCancel(context.WithoutCancel(c.t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		started.ended <- started.Run(ctx, func(ctx context.Context) error {
			started.began <- time.Now()
			<-ctx.Done()
			return nil
		})
	}()
	c.t.Cleanup(func() {
		started.cancel()
		<-done
	})
	return started
}

// lead starts a candidate, and returns when it leads.
func (c contest) lead(identity string, change ...func(*Options)) *candidate {
	c.t.Helper()
	started := c.start(identity, change...)
	started.awaitTerm()
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

// awaitTerm returns when the candidate has begun to lead.
func (c *candidate) awaitTerm() time.Time {
	c.t.Helper()
	select {
	case at := <-c.began:
		return at
	case <-time.After(patience):
		c.t.Fatalf("%s does not lead", c.Identity())
		return time.Time{}
	}
}

// awaitLeader returns when OnNewLeader was called with a leader.
func (c *candidate) awaitLeader(identity string) Leader {
	c.t.Helper()
	deadline := time.After(patience)
	for {
		select {
		case l := <-c.leaders:
			if l.Identity == identity {
				return l
			}
		case <-deadline:
			c.t.Fatalf("%s sees %+v, not %s", c.Identity(), c.Leader(), identity)
		}
	}
}
