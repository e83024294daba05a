package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	coordinationv1client "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/test/testenv"
)

const leaseName = "eventd"

// patience is how long a test waits for what is to happen soon.
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
	leaders chan Leader    // that it was told of
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

// awaitLeader returns when the candidate was told of a leader.
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
			c.t.Fatalf("%s knows of %+v, not of %s", c.Identity(), c.Leader(), identity)
		}
	}
}

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
	// The shortest time between two reads that no watch hints at.
	if worst := took[len(took)-1]; worst >= 2*time.Second {
		t.Errorf("worst %s: the retry period was waited for", worst)
	}
}

// cut is a transport whose requests are not answered once it is torn, and end
// with their contexts.
type cut struct {
	http.RoundTripper
	torn <-chan struct{}
}

func (c cut) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-c.torn:
		<-r.Context().Done()
		return nil, r.Context().Err()
	default:
		return c.RoundTripper.RoundTrip(r)
	}
}

// tornConfig is that of a client that can be cut off.
func tornConfig(config *rest.Config) (*rest.Config, func()) {
	torn := make(chan struct{})
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return cut{next, torn} })
	return config, sync.OnceFunc(func() { close(torn) })
}

func TestLeaseOfALeaderThatIsCutOffIsTakenWhenItHasExpired(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	config, cutOff := tornConfig(cluster.Config())
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
	t.Logf("taken over after %s", took)
	if took < 2*time.Second || took > 5*time.Second {
		t.Errorf("taken over after %s, of a lease of 3s", took)
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
		t.Errorf("the standby knows %+v", l)
	}
	if l := leader.Leader(); l != want {
		t.Errorf("the leader knows %+v", l)
	}
}

func TestForeignMetadataOfTheLeaseIsKept(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	leases := kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1().Leases(namespace)
	created, err := leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: leaseName, Labels: map[string]string{"app": "eventd"}, Annotations: map[string]string{"note": "keep"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leader := startCandidate(t, cluster.Config(), namespace, "leader")
	leader.awaitTerm()
	requireKept := func(annotations ...string) {
		t.Helper()
		lease, err := leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(lease.Labels, created.Labels) || !reflect.DeepEqual(lease.OwnerReferences, created.OwnerReferences) || lease.Annotations["note"] != "keep" {
			t.Errorf("kept: %+v", lease.ObjectMeta)
		}
		if keys := slices.Sorted(maps.Keys(lease.Annotations)); !slices.Equal(keys, annotations) {
			t.Errorf("annotations %v, want %v", keys, annotations)
		}
	}
	requireKept(AnnouncementAnnotation, "note")
	leader.stop()
	if err := <-leader.ended; err != nil {
		t.Error(err)
	}
	requireKept("note")
}

// Another lock that has written the Lease knows nothing of the annotation.
func TestAnnouncementOfAFormerHolderIsNotTheHoldersOwn(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	lock := newLeaseLock(leaseClient(t, cluster.Config()), namespace, "former")
	record := resourcelock.LeaderElectionRecord{HolderIdentity: "former", LeaseDurationSeconds: 15}
	if err := lock.Create(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if lock.Announced().Address != "former:443" {
		t.Fatalf("announced %+v", lock.Announced())
	}
	other := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: namespace, Name: leaseName}, LockConfig: resourcelock.ResourceLockConfig{Identity: "other"},
		Client: kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1(),
	}
	if _, _, err := other.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	record.HolderIdentity = "other"
	if err := other.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if lock.Announced() != (Announcement{}) {
		t.Errorf("announced %+v", lock.Announced())
	}
	record.HolderIdentity = "former"
	if err := other.Update(t.Context(), record); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), record); !apierrors.IsConflict(err) {
		t.Errorf("a write upon a stale read: %v", err)
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

// deleteLease returns when the Lease has been put back.
func deleteLease(t *testing.T, leases coordinationv1client.LeaseInterface, holder string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	watch, err := leases.Watch(ctx, metav1.SingleObject(metav1.ObjectMeta{Name: leaseName}))
	if err != nil {
		t.Fatal(err)
	}
	defer watch.Stop()
	began := time.Now()
	if err := leases.Delete(ctx, leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	gone := false
	for event := range watch.ResultChan() {
		lease, ok := event.Object.(*coordinationv1.Lease)
		gone = gone || event.Type == apiwatch.Deleted
		if !gone || !ok || event.Type != apiwatch.Added {
			continue
		}
		t.Logf("put back after %s", time.Since(began))
		if got := ptr.Deref(lease.Spec.HolderIdentity, ""); got != holder {
			t.Errorf("put back, and held by %q", got)
		}
		return
	}
	t.Fatal("the Lease is not put back")
}

func TestLeaseIsCreatedOnlyIfThereIsNone(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	a, b := newLeaseLock(leaseClient(t, cluster.Config()), namespace, "a"), newLeaseLock(leaseClient(t, cluster.Config()), namespace, "b")
	record := func(holder string) resourcelock.LeaderElectionRecord {
		return resourcelock.LeaderElectionRecord{HolderIdentity: holder, LeaseDurationSeconds: 15}
	}
	if err := a.Create(t.Context(), record("a")); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), record("b")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	if read, _, err := b.Get(t.Context()); err != nil || read.HolderIdentity != "a" {
		t.Errorf("held by %v (%v)", read, err)
	}
	// An update is of the Lease that was read, not of any of that name.
	leases := kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1().Leases(namespace)
	if err := leases.Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(t.Context(), record("a")); !isConflict(err) && !isNotFound(err) {
		t.Errorf("an update of what was deleted: %v", err)
	}
	if _, _, err := a.Get(t.Context()); !isNotFound(err) {
		t.Errorf("an update has created a Lease: %v", err)
	}
	invalid := record("c")
	invalid.LeaseDurationSeconds = -1
	if err := b.Create(t.Context(), invalid); !apierrors.IsInvalid(err) {
		t.Errorf("a Lease that is not valid: %v", err)
	}
}

// The rights that the documentation names are enough.
func TestOneLeaseByNameIsAllTheRightThatIsNeeded(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	admin := kubernetes.NewForConfigOrDie(cluster.Config())
	_, err := admin.CoordinationV1().Leases(namespace).Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().Roles(namespace).Create(t.Context(), &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
			ResourceNames: []string{leaseName}, Verbs: []string{"get", "update", "watch", "create"},
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = admin.RbacV1().RoleBindings(namespace).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: leaseName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: leaseName},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: namespace, Name: leaseName}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.ServiceAccount(t, namespace, leaseName)
	a := startCandidate(t, config, namespace, "a")
	a.awaitTerm()
	deleteLease(t, admin.CoordinationV1().Leases(namespace), "a")
	if !a.Leading() {
		t.Error("it does not lead any more")
	}
	other := newLeaseLock(leaseClient(t, config), namespace, "other")
	other.Name = "another-lease"
	if err := other.Create(t.Context(), resourcelock.LeaderElectionRecord{LeaseDurationSeconds: 15}); !apierrors.IsForbidden(err) {
		t.Errorf("another Lease is created: %v", err)
	}
	// One hint is that the watch has begun, the others are what it reports.
	hinted := make(chan struct{}, 100)
	watching, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		watch := LeaseWatch{Namespace: namespace, Name: leaseName, Client: leaseClient(t, config)}
		ended <- watch.Watch(watching, func() { hinted <- struct{}{} })
	}()
	for range 3 {
		select {
		case <-hinted:
		case err := <-ended:
			t.Fatal(err)
		case <-time.After(patience):
			t.Fatal("no hint")
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

type events struct {
	mu   sync.Mutex
	seen []string
}

func (e *events) Eventf(subject runtime.Object, eventType, reason, message string, args ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	lease := subject.(*coordinationv1.Lease)
	e.seen = append(e.seen, fmt.Sprint(lease.Kind, " ", lease.Name, " ", eventType, " ", reason, ": ", fmt.Sprintf(message, args...), " ", lease.UID != ""))
}

func TestBecomingAndCeasingToBeTheLeaderAreEventsOfTheLease(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	var recorded events
	a := startCandidate(t, cluster.Config(), namespace, "a", func(o *Options) { o.Lock.(*LeaseLock).Recorder = &recorded })
	a.awaitTerm()
	a.stop()
	if err := <-a.ended; err != nil {
		t.Error(err)
	}
	recorded.mu.Lock()
	defer recorded.mu.Unlock()
	want := "Lease eventd Normal LeaderElection: a became leader true, Lease eventd Normal LeaderElection: a stopped leading true"
	if got := strings.Join(recorded.seen, ", "); got != want {
		t.Errorf("recorded %q", got)
	}
}
