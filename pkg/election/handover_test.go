package election

import (
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"

	"github.com/eventd/eventd/test/testenv"
)

func TestReleaseHandsOverWithinAnInstant(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	leader := startCandidate(t, cluster.Config(), namespace, "replica-0")
	leader.awaitTerm()
	var took []time.Duration
	for n := range 20 {
		standby := startCandidate(t, cluster.Config(), namespace, fmt.Sprint("replica-", n+1))
		standby.awaitLeader(leader.Identity())
		told := time.Now()
		leader.stop()
		took = append(took, standby.awaitTerm().Sub(told))
		if err := <-leader.ended; err != nil {
			t.Error(err)
		}
		leader = standby
	}
	slices.Sort(took)
	t.Logf("from the stop of the leader to the next one's term: median %s, worst %s, all %s", took[len(took)/2], took[len(took)-1], took)
	if median := took[len(took)/2]; median > 300*time.Millisecond {
		t.Errorf("median %s", median)
	}
	// The minimum time between two reads without a hint.
	if worst := took[len(took)-1]; worst >= 2*time.Second {
		t.Errorf("worst %s: the retry period was waited for", worst)
	}
}

// cut is a transport that sends no request after cutOff is closed: requests end with
// their contexts.
type cut struct {
	http.RoundTripper
	cutOff <-chan struct{}
}

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-c.cutOff:
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		return c.RoundTripper.RoundTrip(r)
	}
}

// cutConfig returns the configuration of a client that can be cut off.
func cutConfig(config *rest.Config) (*rest.Config, func()) {
	cutOff := make(chan struct{})
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cut{next, cutOff} })
	return config, sync.OnceFunc(func() { close(cutOff) })
}

func TestLeaseOfALeaderThatIsCutOffIsAcquiredWhenItHasExpired(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	config, cutOff := cutConfig(cluster.Config())
	leader := startCandidate(t, config, namespace, "cut off", shortLease)
	leader.awaitTerm()
	standby := startCandidate(t, cluster.Config(), namespace, "standby", shortLease)
	standby.awaitLeader("cut off")
	at := time.Now()
	cutOff()
	began := standby.awaitTerm()
	if leader.Leading() {
		t.Error("two leaders")
	}
	if standby.Leader() != (Leader{"standby", Announcement{"standby:443", "5a5a"}}) {
		t.Errorf("the leader is %+v", standby.Leader())
	}
	// The last renewal was made up to a retry period before.
	took := began.Sub(at)
	t.Logf("acquired after %s", took)
	if took < 2*time.Second || took > 5*time.Second {
		t.Errorf("acquired after %s, of a lease of 3s", took)
	}
}

func TestStandbyReadsWhatTheLeaderAnnouncesTogetherWithItsName(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	leader := startCandidate(t, cluster.Config(), namespace, "leader")
	leader.awaitTerm()
	standby := startCandidate(t, cluster.Config(), namespace, "standby")
	want := Leader{"leader", Announcement{"leader:443", "5a5a"}}
	if l := standby.awaitLeader("leader"); l != want {
		t.Errorf("the standby reads %+v", l)
	}
	if l := leader.Leader(); l != want {
		t.Errorf("the leader reads %+v", l)
	}
}

func TestElectorWorksWithTheLocksOfClientGo(t *testing.T) {
	cluster := testenv.Shared(t)
	for name, multi := range map[string]bool{"LeaseLock": false, "MultiLock": true} {
		t.Run(name, func(t *testing.T) {
			namespace := cluster.Namespace(t)
			lockOf := func(identity string) resourcelock.Interface {
				one := func(name string) resourcelock.Interface {
					return &resourcelock.LeaseLock{
						LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
						Client: kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1(),
					}
				}
				if multi {
					return &resourcelock.MultiLock{Primary: one("old"), Secondary: one(leaseName)}
				}
				return one(leaseName)
			}
			with := func(identity string) func(*Options) { return func(o *Options) { o.Lock = lockOf(identity) } }
			a := startCandidate(t, cluster.Config(), namespace, "a", with("a"))
			a.awaitTerm()
			b := startCandidate(t, cluster.Config(), namespace, "b", with("b"))
			b.awaitLeader("a")
			a.stop()
			b.awaitTerm()
		})
	}
}
