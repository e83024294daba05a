package faultproxy

import (
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/testenv"
)

// The Events in the real apiserver agree with the record, and the answers to the
// clients with the faults.
func TestRecordIsTrueOfARealAPIServer(t *testing.T) {
	const writers, each, seed = 8, 15, 1
	for _, api := range []API{CoreV1, EventsV1} {
		t.Run(string(api), func(t *testing.T) {
			cluster := testenv.Shared(t)
			namespace := cluster.Namespace(t)
			p := New(t, cluster.Config(), seed)
			p.SetRules(
				Rule{Match: Match{NamePrefix: "event-0"}, Probability: 1}, // one at least
				Rule{Probability: 0.1, Fault: BeforeWrite(Status(500))},
				Rule{Probability: 0.1, Fault: BeforeWrite(ResetStream)},
				Rule{Probability: 0.1, Fault: AfterWrite(ResetStream)},
				Rule{Probability: 0.1, Fault: AfterWrite(Status(503))},
				Rule{Probability: 0.1, Fault: LateWrite(Uniform(0, 50*time.Millisecond), Status(504))},
				Rule{Probability: 0.1, Fault: Slow(Exponential(time.Millisecond, 20*time.Millisecond), nil)},
			)
			told := make([]error, writers*each) // by the number of the Event
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					for i := range each {
						n := w*each + i
						told[n] = createWith(t, p.Config(), api, namespace, fmt.Sprint("event-", n))
					}
				})
			}
			wg.Wait()
			waitQuiet(t, p)

			record := p.Record()
			t.Logf("seed %d\n%s", seed, record.Table())
			if kinds := len(record.Tallies()); kinds != 7 {
				t.Errorf("%d kinds of fault struck, want 6 and none", kinds)
			}
			var want []string
			for _, e := range record {
				if e.Succeeded() {
					want = append(want, e.Name)
				}
				var n int
				if _, err := fmt.Sscanf(e.Name, "event-%d", &n); err != nil {
					t.Fatal(err)
				}
				if err := told[n]; (err == nil) != (e.Answer == 201) || (e.Answer == 500) != apierrors.IsInternalError(err) {
					t.Errorf("the client of %+v was told %v", e, err)
				}
			}
			slices.Sort(want)
			if got := storedNames(t, cluster, namespace); !slices.Equal(got, want) {
				t.Errorf("stored are %d Events, and %d writes succeeded: %v, %v", len(got), len(want), got, want)
			}
		})
	}
}

// storedNames reads the names from the apiserver, not through the proxy.
func storedNames(t *testing.T, cluster *testenv.ControlPlane, namespace string) []string {
	list, err := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]bool{}
	for _, e := range list.Items {
		names[e.Name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

func TestPatchesAndWatchesOfARealAPIServer(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	p := New(t, cluster.Config(), 1)
	events := kubernetes.NewForConfigOrDie(p.Config()).CoreV1().Events(namespace)
	watcher, err := events.Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	if err := createWith(t, p.Config(), CoreV1, namespace, "a"); err != nil {
		t.Fatal(err)
	}
	select {
	case e := <-watcher.ResultChan():
		if e.Type != watch.Added {
			t.Errorf("the watch says %+v", e)
		}
	case <-time.After(30 * time.Second):
		t.Error("the watch says nothing")
	}
	for _, body := range []string{"{}", `{"count":3}`} {
		if _, err := events.Patch(t.Context(), "a", types.StrategicMergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}
	_, err = events.Patch(t.Context(), "missing", types.StrategicMergePatchType, []byte("{}"), metav1.PatchOptions{})
	if !apierrors.IsNotFound(err) {
		t.Errorf("patching a missing Event: %v", err)
	}
	want := Record{
		{Request: Request{Create, CoreV1, namespace, "a", false, 1}, Status: 201},
		{Request: Request{Patch, CoreV1, namespace, "a", true, 1}, Status: 200},
		{Request: Request{Patch, CoreV1, namespace, "a", false, 2}, Status: 200},
		{Request: Request{Patch, CoreV1, namespace, "missing", true, 1}, Status: 404},
	}
	for i := range want {
		want[i].Forwarded, want[i].Answer, want[i].Ended = true, want[i].Status, true
	}
	if r := p.Record(); !slices.Equal(r, want) {
		t.Errorf("recorded is %+v, want %+v", r, want)
	}
}

// A test would be worth nothing if the proxy lent its rights to its clients.
func TestTokenKeepsItsOwnRightsBehindAnAdministratorsProxy(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	p := New(t, cluster.Config(), 1)
	config := p.Config()
	config.BearerToken = cluster.ServiceAccount(t, namespace, "nobody").BearerToken
	if err := createWith(t, config, CoreV1, namespace, "a"); !apierrors.IsForbidden(err) {
		t.Errorf("the client was told %v", err)
	}
	if e := onlyEntry(t, p); e.Status != 403 {
		t.Errorf("recorded is %+v", e)
	}
}
