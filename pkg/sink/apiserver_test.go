package sink

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/sinktest"
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
		{occurrence.NamespaceNotFound, "no-such-namespace", admin, normal},
		{occurrence.NamespaceTerminating, terminating, admin, normal},
		{occurrence.Forbidden, namespace, testenv.Shared(t).ServiceAccount(t, namespace, "nobody"), normal},
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
	type fields struct {
		count, series              int32
		first, last, observed      bool // timestamps
		annotation, label          string
		generatedName, hasIdentity bool
	}
	got := map[string]fields{}
	for _, e := range stored.List(t, testenv.Shared(t), namespace) {
		object, identified := e.InvolvedObject.Name, e.Annotations[identity.Annotation]
		f := fields{
			count: e.Count, first: !e.FirstTimestamp.IsZero(), last: !e.LastTimestamp.IsZero(),
			annotation: e.Annotations["example.com/a"], label: e.Labels["l"],
			generatedName: strings.HasPrefix(e.Name, object+"."), hasIdentity: identified != "" && identified != "forged",
		}
		if e.Series != nil {
			f.series, f.observed = e.Series.Count, !e.Series.LastObservedTime.IsZero()
		}
		got[object] = f
	}
	want := map[string]fields{
		"pod-7": {count: 2, first: true, last: true, annotation: "b", label: "m", generatedName: true, hasIdentity: true},
		"pod-8": {generatedName: true, hasIdentity: true},
		"pod-9": {series: 2, observed: true, annotation: "b", label: "m", generatedName: true, hasIdentity: true},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(fields{})); diff != "" {
		t.Errorf("stored Events (-want +got):\n%s", diff)
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

// No request would end by itself within a minute. client-go's pings would detect the
// death after 45 s.
func TestDeadConnectionIsNoticedInSecondsAndCostsNothing(t *testing.T) {
	t.Parallel()
	for name, up := range map[string]bool{"packets vanish both ways": true, "answers vanish": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const bound, series = 15 * time.Second, 200
			namespace := testenv.Shared(t).Namespace(t)
			var network sinktest.Network
			o := unlimited()
			o.RequestTimeout = time.Minute
			b := newBench(t, namespace, connect(t, network.Over(testenv.Shared(t).Config())), o)
			b.recordEach(series)
			b.flush()

			before := network.Dials.Load()
			b.recordEach(series) // some of these are in flight
			network.Lose(int(before), up)
			b.recordEach(series)
			died := time.Now()
			b.flush()
			if took := time.Since(died); took > bound {
				t.Errorf("the last write after the death took %v, want at most %v", took, bound)
			}
			b.drain()
			b.wantEnds(ends{written: 3 * series})
			wantStored(t, namespace, series, 3*series)
			if lost, dials := network.Lost.Load(), network.Dials.Load()-before; lost == 0 || dials == 0 {
				t.Errorf("%d bytes were lost and %d new connections made: no connection has died", lost, dials)
			}
		})
	}
}

// If one of the connections cannot be made, because the way to one of several
// apiservers drops all packets, requests use the other. A request whose timeout ended during
// the dial is retried, and nothing else waits for that.
func TestConnectionThatCannotBeMadeHoldsUpNothing(t *testing.T) {
	t.Parallel()
	network := &sinktest.Network{Fail: func(dial int64) error {
		if dial == 1 {
			return nil
		}
		<-t.Context().Done()
		return t.Context().Err()
	}}
	o := unlimited()
	o.Concurrency, o.MinConcurrency = 4, 4
	o.RequestTimeout = 2 * time.Second // less than a dial may take
	b := newBench(t, testenv.Shared(t).Namespace(t), connect(t, network.Over(testenv.Shared(t).Config())), o)
	const series = 500
	b.recordEach(series)
	b.drain()
	b.wantEnds(ends{written: series})
	if n := network.Dials.Load(); n < 2 {
		t.Errorf("%d dials", n)
	}
	failed := func(c apiclient.Class) float64 {
		return testutil.ToFloat64(b.metrics.failed.WithLabelValues(string(c)))
	}
	if n := failed(apiclient.ClassUnreachable); n != 0 {
		t.Errorf("the apiserver counted as unreachable %v times", n)
	}
	if failed(apiclient.ClassRetry) == 0 {
		t.Error("no request timed out during the dial")
	}
}

// A connection that is dead, and not known to be, gets its part of the requests. The rest
// use the other one.
func TestDeadConnectionTakesNoMoreThanItsPart(t *testing.T) {
	t.Parallel()
	var network sinktest.Network
	client, namespace := connect(t, network.Over(testenv.Shared(t).Config())), testenv.Shared(t).Namespace(t)
	for range apiclient.Connections { // one over each
		if _, err := client.Create(t.Context(), occurrence.CoreV1, sinktest.Unnamed(namespace, false)); err != nil {
			t.Fatal(err)
		}
	}
	o := unlimited()
	const inFlight, series = 8, 50 // several times what is in flight
	o.Concurrency, o.MinConcurrency = inFlight, inFlight
	b := newBench(t, namespace, client, o)
	network.Lose(1, true)
	b.recordEach(series)
	await.Until(t, "the writes over the other connection", func() bool {
		return b.ledger.Totals().Written() >= series-inFlight
	})
	if n := network.Dials.Load(); n != apiclient.Connections {
		t.Errorf("it was written when the connection was known to be dead, after %d dials", n)
	}
}
