package election

import (
	"context"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const leaseName = "eventd"

// patience is how long a test waits for something that happens soon.
const patience = 30 * time.Second

// shortLease makes tests of expiry short.
func shortLease(o *Options) {
	o.LeaseDuration, o.RenewDeadline, o.RetryPeriod, o.RequestTimeout = 3*time.Second, 2*time.Second, 500*time.Millisecond, time.Second
}

// candidate is an elector against a real apiserver.
type candidate struct {
	*Elector
	t       *testing.T
	began   chan time.Time // of terms
	leaders chan Leader    // arguments of OnNewLeader
	stop    context.CancelFunc
	ended   chan error
}

func leaseClient(t *testing.T, config *rest.Config) rest.Interface {
	t.Helper()
	client, err := NewLeaseClient(config, time.Second)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func newLeaseLock(client rest.Interface, namespace, identity string) *LeaseLock {
	return &LeaseLock{
		Namespace: namespace, Name: leaseName, Holder: identity, Client: client,
		Announce: func() Announcement { return Announcement{Address: identity + ":443", CertificateSHA256: "5a5a"} },
	}
}

func startCandidate(t *testing.T, config *rest.Config, namespace, identity string, change ...func(*Options)) *candidate {
	t.Helper()
	client := leaseClient(t, config)
	o := options(newLeaseLock(client, namespace, identity))
	o.Watch = (&LeaseWatch{Namespace: namespace, Name: leaseName, Client: client}).Watch
	c := &candidate{t: t, began: make(chan time.Time, 10), leaders: make(chan Leader, 100), ended: make(chan error, 1)}
	o.OnNewLeader = func(l Leader) { c.leaders <- l }
	for _, change := range change {
		change(&o)
	}
	var err error
	if c.Elector, err = New(o); err != nil {
		t.Fatal(err)
	}
	var ctx context.Context
	ctx, c.stop = context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.ended <- c.Run(ctx, func(ctx context.Context) error {
			c.began <- time.Now()
			<-ctx.Done()
			return nil
		})
	}()
	t.Cleanup(func() {
		c.stop()
		<-done
	})
	return c
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
