package sink

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/testenv"
)

func TestCountsAddUpThoughAnswersAreLost(t *testing.T) {
	for name, change := range map[string][]func(*occurrence.Occurrence){"core/v1": nil, "events.k8s.io/v1": {newStyle}} {
		t.Run(name, func(t *testing.T) {
			const sinks, recorders, rounds, series = 3, 4, 50, 10
			namespace := testenv.Shared(t).Namespace(t)
			var benches []*bench
			for range sinks {
				c := &faultyClient{clientFor(t, testenv.Shared(t).Config()), 20}
				benches = append(benches, newBench(t, namespace, c, unlimited()))
			}
			var wg sync.WaitGroup
			for _, b := range benches {
				for range recorders {
					wg.Go(func() {
						for i := range rounds * series {
							b.record(i%series, change...)
						}
					})
				}
			}
			wg.Wait()
			var created int64
			for _, b := range benches {
				totals := b.close()
				created += totals.Outcomes[occurrence.Created]
				if totals.Written() != totals.Recorded {
					t.Errorf("recorded %d, settled as %v", totals.Recorded, totals.Outcomes)
				}
			}
			if created != series {
				t.Errorf("%d Events were created for %d series", created, series)
			}
			wantStored(t, namespace, series, sinks*recorders*rounds*series)
		})
	}
}

func TestNextInstanceContinuesTheCount(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	for range 3 {
		b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), unlimited())
		for range 5 {
			b.record(0)
		}
		b.close()
	}
	wantStored(t, namespace, 1, 15)
}

func TestExpiredEventIsCreatedAgainWithWhatIsOwed(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), unlimited())
	b.record(0)
	b.record(0)
	if left := b.Flush(t.Context()); left.Series != 0 {
		t.Fatal(left)
	}
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	if err := clients.CoreV1().Events(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	b.record(0)
	b.record(0)
	b.record(0)
	totals := b.close()
	wantStored(t, namespace, 1, 3)
	if got := totals.Outcomes[occurrence.Created]; got != 2 || totals.Written() != 5 {
		t.Errorf("created %d, written %d", got, totals.Written())
	}
}

func TestRefusalsSettleWithTheirReason(t *testing.T) {
	t.Parallel() // it waits for 15 s until a 403 is believed
	admin := testenv.Shared(t).Config()
	clients := kubernetes.NewForConfigOrDie(admin)
	namespace := testenv.Shared(t).Namespace(t)
	nobody := testenv.Shared(t).ServiceAccount(t, namespace, "nobody")
	terminating := testenv.Shared(t).Namespace(t)
	if err := clients.CoreV1().Namespaces().Delete(t.Context(), terminating, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason    occurrence.Reason
		namespace string
		config    *rest.Config
		change    func(*occurrence.Occurrence)
	}{
		{occurrence.NamespaceNotFound, "no-such-namespace", admin, func(*occurrence.Occurrence) {}},
		{occurrence.NamespaceTerminating, terminating, admin, func(*occurrence.Occurrence) {}},
		{occurrence.Forbidden, namespace, nobody, func(*occurrence.Occurrence) {}},
		{occurrence.Invalid, namespace, admin, func(o *occurrence.Occurrence) { o.Event.InvolvedObject.Namespace = "another" }},
		{occurrence.Invalid, namespace, admin, func(o *occurrence.Occurrence) {
			newStyle(o)
			o.Event.Message = strings.Repeat("x", 1025)
		}},
	} {
		t.Run(string(test.reason), func(t *testing.T) {
			b := newBench(t, test.namespace, clientFor(t, test.config), unlimited())
			end := make(chan occurrence.Settlement, 1)
			b.record(0, test.change, func(o *occurrence.Occurrence) { o.Settled = func(s occurrence.Settlement) { end <- s } })
			select {
			case s := <-end:
				if s.Outcome != occurrence.Dropped || s.Reason != test.reason || !isStatus(s.Err) {
					t.Errorf("settled as %+v", s)
				}
			case <-time.After(30 * time.Second):
				t.Fatal("not settled")
			}
		})
	}
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
}

// Most controllers hold no other rights.
func TestRightsToCreateAndPatchAreEnough(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	config := serviceAccount(t, namespace, "create", "patch")
	// The second instance finds the Events and has to read them.
	for range 2 {
		b := newBench(t, namespace, clientFor(t, config), unlimited())
		for range 2 {
			b.record(0)
			b.record(0, newStyle)
		}
		totals := b.close()
		if totals.Written() != 4 {
			t.Errorf("settled as %v, %v", totals.Outcomes, totals.Dropped)
		}
	}
	wantStored(t, namespace, 2, 8)
}

// What the apiserver stores is what its readers expect.
func TestStoredEvent(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), unlimited())
	annotate := func(o *occurrence.Occurrence) {
		o.Event.Annotations = map[string]string{"example.com/a": "b", identity.Annotation: "forged", counter.Annotation: "forged"}
		o.Event.Labels = map[string]string{"l": "m"}
		o.Event.Name, o.Event.ResourceVersion, o.Event.UID = "posted", "5", "posted-uid"
	}
	b.record(7, annotate)
	b.record(7)
	b.record(8, newStyle)
	b.record(9, newStyle, annotate)
	b.record(9, newStyle)
	b.close()
	for _, e := range stored(t, namespace) {
		switch e.InvolvedObject.Name {
		case "pod-7":
			if e.Count != 2 || e.FirstTimestamp.IsZero() || e.LastTimestamp.IsZero() || e.Series != nil {
				t.Errorf("classic Event: %+v", e)
			}
		case "pod-8":
			if e.Series != nil || e.Count != 0 {
				t.Errorf("single new-style Event: %+v", e)
			}
		case "pod-9":
			if e.Series == nil || e.Series.Count != 2 || e.Series.LastObservedTime.IsZero() || e.Count != 0 {
				t.Errorf("new-style Event: %+v", e)
			}
		}
		if e.InvolvedObject.Name != "pod-8" && (e.Annotations["example.com/a"] != "b" || e.Labels["l"] != "m") {
			t.Errorf("annotations or labels lost: %+v", e.ObjectMeta)
		}
		if !strings.HasPrefix(e.Name, e.InvolvedObject.Name+".") || e.Annotations[identity.Annotation] == "forged" {
			t.Errorf("metadata: %+v", e.ObjectMeta)
		}
	}
	wantStored(t, namespace, 3, 5)
}

// A strategic merge patch reads keys that begin with a dollar sign as directives.
// What a reporter says must not be one: the apiserver would refuse the same key
// in a create.
func TestAnnotationsAreNoDirectivesOfAPatch(t *testing.T) {
	for name, directive := range map[string]string{"that takes ours away": "delete", "that replaces ours": "replace", "of no meaning": "nonsense"} {
		t.Run(name, func(t *testing.T) {
			namespace := testenv.Shared(t).Namespace(t)
			o := unlimited()
			o.RetryFor = time.Second
			b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), o)
			for range 4 {
				b.record(0, func(o *occurrence.Occurrence) { o.Event.Annotations = map[string]string{"$patch": directive} })
				b.Flush(t.Context())
			}
			if got := b.close(); got.Written() != 4 {
				t.Errorf("settled %v, dropped %v", got.Outcomes, got.Dropped)
			}
			wantStored(t, namespace, 1, 4)
			for _, e := range stored(t, namespace) {
				if e.Annotations[identity.Annotation] == "" || e.Annotations[counter.Annotation] == "" {
					t.Errorf("%s has lost our annotations: %v", e.Name, e.Annotations)
				}
			}
		})
	}
}
