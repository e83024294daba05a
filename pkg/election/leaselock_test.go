package election

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/test/await"
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

// What the configuration has for other clients delays none of its requests.
func TestLeaseClientHasConnectionsAndARateLimitOfItsOwn(t *testing.T) {
	from := make(chan string, 2)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		from <- req.Proto + " " + req.RemoteAddr
	}))
	server.EnableHTTP2 = true
	server.StartTLS()
	defer server.Close()
	config := &rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{Insecure: true}, Timeout: 1, RateLimiter: flowcontrol.NewFakeNeverRateLimiter()}
	for range 2 {
		client, err := NewLeaseClient(config, time.Second)
		if err != nil {
			t.Fatal(err)
		}
		if err := client.Get().Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	if first, second := <-from, <-from; first == second || !strings.HasPrefix(first, "HTTP/1.1 ") || config.Timeout != 1 {
		t.Errorf("requests %q and %q, and the configuration is %+v", first, second, config)
	}
}

func TestForeignMetadataOfTheLeaseIsKept(t *testing.T) {
	c := newContest(t)
	created, err := c.leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
		Name: leaseName, Labels: map[string]string{"app": "eventd"}, Annotations: map[string]string{"note": "keep"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "owner", UID: "1"}},
	}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	leader := c.lead("leader")
	requireKept := func(announces bool) {
		t.Helper()
		lease, err := c.leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		got := lease.ObjectMeta
		if _, announced := got.Annotations[AnnouncementAnnotation]; announced != announces {
			t.Errorf("has an announcement: %t", announced)
		}
		delete(got.Annotations, AnnouncementAnnotation)
		got.ResourceVersion, got.ManagedFields = created.ResourceVersion, created.ManagedFields
		if diff := cmp.Diff(created.ObjectMeta, got); diff != "" {
			t.Error(diff)
		}
	}
	requireKept(true)
	leader.stop()
	requireKept(false)
}

func heldRecord(holder string) record {
	return record{HolderIdentity: holder, LeaseDurationSeconds: 15}
}

// Another kind of lock changes the holder and keeps the annotation.
func TestAnnouncementOfAFormerHolderIsNotTheHoldersOwn(t *testing.T) {
	c := newContest(t)
	lock, other := c.lock("former"), c.foreignLock(leaseName, "other")
	if err := lock.Create(t.Context(), heldRecord("former")); err != nil {
		t.Fatal(err)
	}
	if a := lock.Announced(); a != announcementOf("former") {
		t.Fatalf("announced %+v", a)
	}
	if _, _, err := other.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := other.Update(t.Context(), heldRecord("other")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := lock.Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if a := lock.Announced(); a != (Announcement{}) {
		t.Errorf("announced %+v", a)
	}
	if err := other.Update(t.Context(), heldRecord("former")); err != nil {
		t.Fatal(err)
	}
	if err := lock.Update(t.Context(), heldRecord("former")); !apierrors.IsConflict(err) {
		t.Errorf("a write upon a stale read: %v", err)
	}
}

func TestLeaseIsCreatedOnlyIfThereIsNone(t *testing.T) {
	c := newContest(t)
	a, b := c.lock("a"), c.lock("b")
	if err := a.Create(t.Context(), heldRecord("a")); err != nil {
		t.Fatal(err)
	}
	if err := b.Create(t.Context(), heldRecord("b")); !apierrors.IsAlreadyExists(err) {
		t.Errorf("created again: %v", err)
	}
	if read, _, err := b.Get(t.Context()); err != nil || read.HolderIdentity != "a" {
		t.Errorf("held by %v (%v)", read, err)
	}
	// An update is of the Lease that was read, not of any of that name.
	if err := c.leases.Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.Update(t.Context(), heldRecord("a")); !isConflict(err) && !isNotFound(err) {
		t.Errorf("an update of what was deleted: %v", err)
	}
	if _, _, err := a.Get(t.Context()); !isNotFound(err) {
		t.Errorf("an update has created a Lease: %v", err)
	}
	if err := b.Create(t.Context(), record{HolderIdentity: "c", LeaseDurationSeconds: -1}); !apierrors.IsInvalid(err) {
		t.Errorf("a Lease that is not valid: %v", err)
	}
}

// The rights that the documentation names are enough.
func TestOneLeaseByNameIsAllTheRightThatIsNeeded(t *testing.T) {
	c := newContest(t)
	_, err := c.leases.Create(t.Context(), &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: leaseName}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c.config = c.cluster.ServiceAccount(t, c.namespace, leaseName)
	c.cluster.Grant(t, c.namespace, leaseName, rbacv1.PolicyRule{
		APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"},
		ResourceNames: []string{leaseName}, Verbs: []string{"get", "update", "watch", "create"},
	})
	a := c.lead("a")
	before, err := c.leases.Get(t.Context(), leaseName, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.leases.Delete(t.Context(), leaseName, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the leader has created the Lease again", func() bool {
		lease, err := c.leases.Get(t.Context(), leaseName, metav1.GetOptions{})
		return err == nil && lease.UID != before.UID && ptr.Deref(lease.Spec.HolderIdentity, "") == "a"
	})
	if !a.Leading() {
		t.Error("it does not lead any more")
	}
	other := c.lock("other")
	other.Name = "another-lease"
	if err := other.Create(t.Context(), heldRecord("other")); !apierrors.IsForbidden(err) {
		t.Errorf("another Lease is created: %v", err)
	}
	if n := testutil.ToFloat64(a.metrics.watchRestarts); n != 0 {
		t.Errorf("the watch has ended %v times", n)
	}
}

// events are what a resourcelock.EventRecorder gets.
type events []string

func (e *events) Eventf(subject runtime.Object, eventType, reason, message string, args ...any) {
	lease := subject.(*coordinationv1.Lease)
	*e = append(*e, fmt.Sprint(lease.Kind, " ", lease.Name, " ", eventType, " ", reason, ": ", fmt.Sprintf(message, args...), " ", lease.UID != ""))
}

func TestBecomingAndCeasingToBeTheLeaderAreEventsOfTheLease(t *testing.T) {
	var recorded events
	newContest(t).lead("a", func(o *Options) { o.Lock.(*LeaseLock).Recorder = &recorded }).stop()
	want := events{"Lease eventd Normal LeaderElection: a became leader true", "Lease eventd Normal LeaderElection: a stopped leading true"}
	if !slices.Equal(recorded, want) {
		t.Errorf("recorded %q, want %q", recorded, want)
	}
}
