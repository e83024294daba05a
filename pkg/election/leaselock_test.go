package election

import (
	"context"
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/test/testenv"
)

// FuzzAnnounced: only the announcement of the holder is returned.
func FuzzAnnounced(f *testing.F) {
	f.Add(`{"identity":"a","address":"10.0.0.1:443","certificateSHA256":"00"}`, "a")
	f.Add(`{"identity":"b","address":"10.0.0.1:443"}`, "a")
	f.Add(`{"Identity":"b","identity":"a","address":7}`, "a")
	f.Add(``, "")
	f.Fuzz(func(t *testing.T, annotation, holder string) {
		lock := &LeaseLock{lease: &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{AnnouncementAnnotation: annotation}},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
		}}
		announced := lock.Announced()
		if holder += "-2"; announced != (Announcement{}) && lock.Announced() != (Announcement{}) {
			t.Errorf("%q is the announcement of %q and of another holder", annotation, holder)
		}
	})
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

// Another kind of lock changes the holder and keeps the annotation.
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

// deleteLease deletes the Lease, and returns when the leader has created it again.
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
		t.Logf("created again after %s", time.Since(began))
		if got := ptr.Deref(lease.Spec.HolderIdentity, ""); got != holder {
			t.Errorf("created again, and held by %q", got)
		}
		return
	}
	t.Fatal("the Lease is not created again")
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
	// The first hint is the start of the watch, the others are events.
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
