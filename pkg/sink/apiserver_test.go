package sink

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

func TestCountsAddUpThoughAnswersAreLost(t *testing.T) {
	inBothAPIs(t, func(t *testing.T, api change) {
		const sinks, recorders, rounds, series = 3, 4, 50, 10
		namespace := testenv.Shared(t).Namespace(t)
		var benches []*bench
		for range sinks {
			benches = append(benches, newBench(t, namespace, faultyClient{clientFor(t, testenv.Shared(t).Config())}, unlimited()))
		}
		var wg sync.WaitGroup
		for _, b := range benches {
			for range recorders {
				wg.Go(func() {
					for range rounds {
						b.recordEach(series, api)
					}
				})
			}
		}
		wg.Wait()
		var created int64
		for _, b := range benches {
			created += b.drain().Outcomes[occurrence.Created]
			b.wantEnds(ends{written: recorders * rounds * series})
		}
		if created != series {
			t.Errorf("%d Events were created for %d series", created, series)
		}
		wantStored(t, namespace, series, sinks*recorders*rounds*series)
	})
}

// The next instance finds the Events and has to read them. Most controllers have no other
// rights than these.
func TestNextInstanceContinuesTheCount(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	config := serviceAccount(t, namespace, "create", "patch")
	for range 3 {
		b := newBench(t, namespace, clientFor(t, config), unlimited())
		for range 5 {
			b.record(0)
			b.record(0, newStyle)
		}
		b.drain()
		b.wantEnds(ends{written: 10})
	}
	wantStored(t, namespace, 2, 30)
}

func TestExpiredEventIsCreatedAgainWithWhatIsPending(t *testing.T) {
	namespace := testenv.Shared(t).Namespace(t)
	b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), unlimited())
	b.record(0)
	b.record(0)
	b.flush()
	clients := kubernetes.NewForConfigOrDie(testenv.Shared(t).Config())
	if err := clients.CoreV1().Events(namespace).DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		b.record(0)
	}
	totals := b.drain()
	wantStored(t, namespace, 1, 3)
	if created := totals.Outcomes[occurrence.Created]; created != 2 || totals.Written() != 5 {
		t.Errorf("created %d, written %d", created, totals.Written())
	}
}

func TestRefusalsSettleWithTheirReason(t *testing.T) {
	t.Parallel() // a 403 is retried for 15 s
	admin := testenv.Shared(t).Config()
	namespace, terminating := testenv.Shared(t).Namespace(t), testenv.Shared(t).Namespace(t)
	namespaces := kubernetes.NewForConfigOrDie(admin).CoreV1().Namespaces()
	if err := namespaces.Delete(t.Context(), terminating, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		reason    occurrence.Reason
		namespace string
		config    *rest.Config
		change    change
	}{
		{occurrence.NamespaceNotFound, "no-such-namespace", admin, func(*occurrence.Occurrence) {}},
		{occurrence.NamespaceTerminating, terminating, admin, func(*occurrence.Occurrence) {}},
		{occurrence.Forbidden, namespace, testenv.Shared(t).ServiceAccount(t, namespace, "nobody"), func(*occurrence.Occurrence) {}},
		{occurrence.Invalid, namespace, admin, func(o *occurrence.Occurrence) { o.Event.InvolvedObject.Namespace = "another" }},
		{occurrence.Invalid, namespace, admin, func(o *occurrence.Occurrence) {
			newStyle(o)
			o.Event.Message = strings.Repeat("x", 1025)
		}},
	} {
		t.Run(string(test.reason), func(t *testing.T) {
			b := newBench(t, test.namespace, clientFor(t, test.config), unlimited())
			settled := make(chan occurrence.Settlement, 1)
			b.record(0, test.change, onSettled(func(s occurrence.Settlement) { settled <- s }))
			select {
			case s := <-settled:
				if s.Outcome != occurrence.Dropped || s.Reason != test.reason || !isStatus(s.Err) {
					t.Errorf("settled as %+v", s)
				}
			case <-time.After(await.Timeout):
				t.Fatal("not settled")
			}
		})
	}
}

func isStatus(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status)
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
	b.drain()
	checks := map[string]func(e *corev1.Event) bool{
		"pod-7": func(e *corev1.Event) bool {
			return e.Count == 2 && !e.FirstTimestamp.IsZero() && !e.LastTimestamp.IsZero() && e.Series == nil
		},
		"pod-8": func(e *corev1.Event) bool { return e.Series == nil && e.Count == 0 },
		"pod-9": func(e *corev1.Event) bool {
			return e.Series != nil && e.Series.Count == 2 && !e.Series.LastObservedTime.IsZero() && e.Count == 0
		},
	}
	for _, e := range stored.List(t, testenv.Shared(t), namespace) {
		object := e.InvolvedObject.Name
		if !checks[object](&e) {
			t.Errorf("counts or times: %+v", e)
		}
		if object != "pod-8" && (e.Annotations["example.com/a"] != "b" || e.Labels["l"] != "m") {
			t.Errorf("annotations or labels lost: %+v", e.ObjectMeta)
		}
		if !strings.HasPrefix(e.Name, object+".") || e.Annotations[identity.Annotation] == "forged" {
			t.Errorf("metadata: %+v", e.ObjectMeta)
		}
	}
	wantStored(t, namespace, 3, 5)
}

// A strategic merge patch reads keys that begin with a dollar sign as directives.
// The annotations of a reporter must not be any: the apiserver would refuse the same key
// in a create.
func TestAnnotationsAreNoDirectivesOfAPatch(t *testing.T) {
	for _, directive := range []string{"delete", "replace", "nonsense"} {
		t.Run(directive, func(t *testing.T) {
			namespace := testenv.Shared(t).Namespace(t)
			o := unlimited()
			o.RetryFor = time.Second
			b := newBench(t, namespace, clientFor(t, testenv.Shared(t).Config()), o)
			for range 4 {
				b.record(0, func(o *occurrence.Occurrence) { o.Event.Annotations = map[string]string{"$patch": directive} })
				b.flush()
			}
			b.wantEnds(ends{written: 4})
			wantStored(t, namespace, 1, 4)
			for _, e := range stored.List(t, testenv.Shared(t), namespace) {
				if e.Annotations[identity.Annotation] == "" || e.Annotations[counter.Annotation] == "" {
					t.Errorf("%s has lost our annotations: %v", e.Name, e.Annotations)
				}
			}
		})
	}
}
