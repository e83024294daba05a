package out

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

func TestEveryVersionIsObservedInOrderAndInProtobuf(t *testing.T) {
	cluster := emptied(t)
	config := cluster.Config()
	sent := record(config)
	o, _ := observe(t, config, observer.Options{})
	r := o.Reader(observer.Start{})
	defer r.Close()
	var got collected
	got.read(t, r, got.begun)
	ids := write(t, eventsOf(cluster), "ordered", 40, 4)
	if err := eventsOf(cluster).Delete(t.Context(), "ordered-0", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	got.read(t, r, got.has(ids))
	wantCount(t, "versions", len(got.versions), len(ids))
	if !slices.IsSortedFunc(got.versions, func(a, b observer.Version) int { return rv(a) - rv(b) }) {
		t.Error("the versions are not in order")
	}
	wantCount(t, "watches in protobuf", sent.count("watch=true application/vnd.kubernetes.protobuf"), 1)
	last := rv(got.versions[len(got.versions)-1])
	got.read(t, r, func() bool { n, _ := strconv.Atoi(got.cursor.ResourceVersion); return n > last }) // the deletion
}

func rv(v observer.Version) int {
	n, _ := strconv.Atoi(v.Event.ResourceVersion)
	return n
}

func TestWhatIsStoredIsListedPageByPage(t *testing.T) {
	cluster := emptied(t)
	ids := write(t, eventsOf(cluster), "listed", 1950, 0) // the apiserver may have written some, too
	config := cluster.Config()
	sent := record(config)
	o, _ := observe(t, config, observer.Options{})
	r := o.Reader(observer.Start{Oldest: true})
	defer r.Close()
	var got collected
	got.read(t, r, func() bool { return got.has(ids)() && got.begun() })
	wantCount(t, "versions", len(got.versions), len(ids))
	wantCount(t, "pages", sent.count("limit=250"), 8)
	wantCount(t, "gaps", got.gaps, 0)
	later := write(t, eventsOf(cluster), "later", 20, 1)
	got.read(t, r, got.has(later))
}

// The apiserver compacts what is older than one interval, at the end of the next one.
func TestVersionsThatWereCompactedCollapse(t *testing.T) {
	cluster := testenv.StartForTest(t, testenv.Options{APIServerArgs: []string{"--etcd-compaction-interval=3s"}})
	events := eventsOf(cluster)
	o, end := observe(t, cluster.Config(), observer.Options{})
	r := o.Reader(observer.Start{})
	var got collected
	got.read(t, r, got.begun)
	got.read(t, r, got.has(write(t, events, "before", 5, 0)))
	r.Close()
	end()

	ids := write(t, events, "meanwhile", 5, 3)
	waitCompacted(t, cluster, got.cursor)
	// One reader begins where the first has ended, another one now.
	o, _ = observe(t, cluster.Config(), observer.Options{Start: got.cursor})
	r, now := o.Reader(observer.Start{Cursor: got.cursor}), o.Reader(observer.Start{})
	defer r.Close()
	defer now.Close()
	var other collected
	other.read(t, now, other.begun)
	seen := len(got.versions)
	got.read(t, r, func() bool { return len(got.versions) == seen+5 && got.gaps == 1 })
	for _, v := range got.versions[seen:] {
		if !ids[v.ID()] || v.Event.Count != 4 {
			t.Errorf("%s has the count %d, want the latest version", v.Event.Name, v.Event.Count)
		}
	}
	later := write(t, events, "later", 5, 3)
	got.read(t, r, got.has(later))
	other.read(t, now, other.has(later))
	wantCount(t, "gaps", got.gaps, 1)
	wantCount(t, "gaps of the reader that begins now", other.gaps, 0)
	wantCount(t, "versions for the reader that begins now", len(other.versions), len(later))
}

// waitCompacted waits until a watch from a cursor is refused.
func waitCompacted(t *testing.T, cluster *testenv.ControlPlane, at observer.Cursor) {
	await.Until(t, "the compaction", func() bool {
		w, err := eventsOf(cluster).Watch(t.Context(), metav1.ListOptions{ResourceVersion: at.ResourceVersion})
		if err != nil {
			return apierrors.IsResourceExpired(err)
		}
		defer w.Stop()
		e := <-w.ResultChan()
		return e.Type == watch.Error && apierrors.IsResourceExpired(apierrors.FromObject(e.Object))
	})
}

func TestAKillOfTheApiserverLosesAndRepeatsNothing(t *testing.T) {
	cluster := emptied(t)
	o, _ := observe(t, cluster.Config(), observer.Options{})
	r := o.Reader(observer.Start{})
	defer r.Close()
	var got collected
	got.read(t, r, got.begun)
	ids := write(t, eventsOf(cluster), "first", 50, 1)
	got.read(t, r, got.has(ids))
	if err := errors.Join(cluster.Signal(syscall.SIGKILL), cluster.Up(t.Context())); err != nil {
		t.Fatal(err)
	}
	ids = union(ids, write(t, eventsOf(cluster), "later", 50, 1))
	got.read(t, r, got.has(ids))
	wantCount(t, "versions", len(got.versions), len(ids))
	wantCount(t, "gaps", got.gaps+got.restored, 0)
}

func union(a, b map[string]bool) map[string]bool {
	for id := range b {
		a[id] = true
	}
	return a
}

func TestAfterARestoreOfEtcdEverythingStoredIsReturnedAgain(t *testing.T) {
	cluster := emptied(t)
	o, _ := observe(t, cluster.Config(), observer.Options{})
	r := o.Reader(observer.Start{})
	defer r.Close()
	var got collected
	got.read(t, r, got.begun)
	kept := write(t, eventsOf(cluster), "kept", 5, 1)
	got.read(t, r, got.has(kept))

	data := filepath.Join(filepath.Dir(cluster.Kubeconfig()), "etcd")
	backup := filepath.Join(t.TempDir(), "etcd")
	restart(t, cluster, func() error { return os.CopyFS(backup, os.DirFS(data)) })
	lost := write(t, eventsOf(cluster), "lost", 200, 2) // more than a start writes
	got.read(t, r, got.has(lost))
	wantCount(t, "versions over a restart", len(got.versions), len(kept)+len(lost))
	wantCount(t, "gaps over a restart", got.gaps+got.restored, 0)
	restart(t, cluster, func() error { return errors.Join(os.RemoveAll(data), os.CopyFS(data, os.DirFS(backup))) })

	var again collected
	again.read(t, r, func() bool { return again.restored == 1 && len(again.versions) == 5 })
	for _, v := range again.versions {
		if !kept[v.ID()] || !strings.HasPrefix(v.Event.Name, "kept") {
			t.Errorf("%s is returned", v.Event.Name)
		}
	}
	again.read(t, r, again.has(write(t, eventsOf(cluster), "later", 5, 1)))
	wantCount(t, "the epoch", int(again.cursor.Epoch), 1)
}

func restart(t *testing.T, cluster *testenv.ControlPlane, between func() error) {
	t.Helper()
	if err := errors.Join(cluster.Down(), between(), cluster.Up(t.Context())); err != nil {
		t.Fatal(err)
	}
}

// A user with the right to create Events must not make a page too large for eventd's memory.
func TestLargeEventsAreListedInSmallerPages(t *testing.T) {
	cluster := emptied(t)
	for i := range 40 {
		event := newEvent("large-" + strconv.Itoa(i))
		event.Message = strings.Repeat("large ", 150_000)
		if _, err := eventsOf(cluster).Create(t.Context(), event, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	o, _ := observe(t, cluster.Config(), observer.Options{})
	r := o.Reader(observer.Start{Oldest: true})
	defer r.Close()
	var got collected
	got.read(t, r, func() bool { return len(got.versions) == 40 && got.begun() })
}
