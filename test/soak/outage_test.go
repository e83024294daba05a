package soak

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// statedMemory is that of full stages: of 32,768 queued occurrences, 40,000 pending series, their occurrences, 28,000
// idle series, and a correlator.
const statedMemory = (16 + 40 + 192 + 11 + 9) << 20

// large is a sink with room for what is pending in an outage.
func large() sink.Options {
	o := sink.DefaultOptions()
	o.MaxPendingSeries, o.MaxPendingBytes = 40_000, 192<<20
	return o
}

// outage is one pipeline under load, with a queue for a storm of 20,000.
type outage struct {
	*pipeline.Pipeline
	t        *testing.T
	registry *prometheus.Registry
	load     *load
	// baseline is the live heap before anything was recorded, and peak the greatest since.
	baseline, peak int64
}

func newOutage(t *testing.T, config *rest.Config, namespace string) *outage {
	o := &outage{t: t, registry: prometheus.NewRegistry()}
	options := pipeline.DefaultOptions()
	options.QueueCapacity, options.Sink = 1<<15, large()
	options.Registerer = o.registry
	var err error
	if o.Pipeline, err = pipeline.New(t.Context(), options); err != nil {
		t.Fatal(err)
	}
	client, err := sink.NewClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := o.StartSink(client); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // what a test that failed has left
		ctx, cancel := bounded(t)
		defer cancel()
		_ = o.Shutdown(ctx)
	})
	o.load = &load{recorder: o.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "soak"}), namespace: namespace, recorded: counts{}}
	runtime.GC()
	o.baseline = liveHeap()
	return o
}

func (o *outage) metrics() metrics.Metrics { return metrics.Gather(o.t, o.registry) }

// belowLimit reports whether less than half of the pending limit is used. Above the
// limit occurrences are dropped, which these tests must avoid on a busy machine, too.
func (o *outage) belowLimit() bool {
	most := float64(large().MaxPendingSeries)
	pending := o.metrics().Sum("eventd_sink_pending_series")
	if pending > most {
		o.t.Errorf("%v series are pending at once", pending)
	}
	o.peak = max(o.peak, liveHeap())
	return pending < most/2
}

// waitAway waits until the apiserver has been away for a minute, or in a short run until
// some more was recorded and not written.
func (o *outage) waitAway() {
	if *longrun.Full {
		_ = await.Sleep(o.t.Context(), time.Minute)
		return
	}
	before := o.Totals().Recorded
	await.Within(o.t, deadline(), "occurrences are recorded, and not written, while the apiserver is away", func() bool {
		return o.Totals().Recorded >= before+300 && o.metrics().Sum("eventd_sink_retries_total") > 0
	})
}

// finish records something of old series, shuts the pipeline down, and checks that
// all was written, within the memory.
func (o *outage) finish() {
	for i := range 100 {
		o.load.record(fmt.Sprint("pod-", i))
	}
	ctx, cancel := bounded(o.t)
	defer cancel()
	if err := o.Shutdown(ctx); err != nil {
		o.t.Error(err)
	}
	totals := o.Totals()
	wantAllWritten(o.t, totals, o.metrics())
	if recorded := o.load.recorded.Sum(); totals.Recorded != recorded {
		o.t.Errorf("%d occurrences are recorded, and %d in the ledger", recorded, totals.Recorded)
	}
	if added := o.peak - o.baseline; added > statedMemory {
		o.t.Errorf("the live heap grew by %d MiB, and may by %d", added>>20, statedMemory>>20)
	}
}

// writesPerSecond records as much as can be in flight, and returns at which rate it is
// written.
func (o *outage) writesPerSecond() float64 {
	n := longrun.Either(8000, 300)
	began := time.Now()
	for range n {
		o.load.everything(true)
	}
	await.Within(o.t, deadline(), "the first writes", func() bool { return o.Totals().Written() >= int64(n) })
	return min(float64(n)/time.Since(began).Seconds(), sink.DefaultOptions().QPS)
}

// repeatOutages makes the runs of a test one after the other.
func repeatOutages(t *testing.T, run func(t *testing.T, cluster *testenv.ControlPlane)) {
	cluster := testenv.StartForTest(t, testenv.Options{})
	for i := range longrun.Either(3, 1) {
		t.Run(fmt.Sprint("run ", i+1), func(t *testing.T) { run(t, cluster) })
	}
}

// run ends the apiserver by down, under load, and brings it back by up. The load ends
// when all is written that was due by then.
func (o *outage) run(down, up func()) {
	endLoad := o.load.goOn(o.writesPerSecond()/3, o.belowLimit)
	defer endLoad()
	down()
	o.waitAway()
	up()
	back := time.Now()
	await.Within(o.t, deadline(), "everything that was due is written", func() bool {
		since := time.Since(back).Seconds()
		return o.metrics().Sum("eventd_sink_overdue_seconds") < since
	})
	endLoad()
	o.finish()
}

// The apiserver is killed under load and comes back: everything is written that
// was recorded before, meanwhile and after.
func TestApiserverThatIsAwayCostsNothing(t *testing.T) {
	repeatOutages(t, func(t *testing.T, cluster *testenv.ControlPlane) {
		o := newOutage(t, cluster.Config(), cluster.Namespace(t))
		o.run(func() {
			if err := cluster.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, func() { up(t, cluster) })
		wantStored(t, cluster, o.load.recorded)
	})
}

// The same, and all Events are deleted before the apiserver can be reached again, as
// if they had expired: what is pending is created again, and nothing else.
func TestEventsThatExpireDuringAnOutageAreCreatedAgainWithWhatIsPending(t *testing.T) {
	repeatOutages(t, func(t *testing.T, cluster *testenv.ControlPlane) {
		proxy := faultproxy.New(t, cluster.Config(), *firstSeed)
		o := newOutage(t, proxy.Config(), cluster.Namespace(t))
		var before counts // stored, of which that many are settled
		var settled int64
		o.run(func() {
			proxy.Pause()
			if err := cluster.Down(); err != nil {
				t.Fatal(err)
			}
		}, func() {
			up(t, cluster)
			before = stored.Tally(stored.List(t, cluster, o.load.namespace), objectOf)
			deleteEvents(t, cluster, o.load.namespace)
			settled = o.Totals().Written() // nothing can be written at this moment
			if err := proxy.Resume(); err != nil {
				t.Fatal(err)
			}
		})
		want := counts{}
		for series, n := range o.load.recorded {
			want[series] = n - before[series]
		}
		d := stored.Diff(want, stored.List(t, cluster, o.load.namespace), objectOf)
		// A write whose answer was lost is pending although it was stored. It is written
		// again, since its Event was deleted.
		d.Twice -= before.Sum() - settled
		if d != (stored.Difference{}) {
			t.Errorf("of %d occurrences that were pending or came later %d are lost, there are %d duplicates, and %d too many are stored again",
				o.load.recorded.Sum()-settled, d.Lost, d.Duplicates, d.Twice)
		}
	})
}

// up starts the apiserver again.
func up(t *testing.T, cluster *testenv.ControlPlane) {
	t.Helper()
	ctx, cancel := bounded(t)
	defer cancel()
	if err := cluster.Up(ctx); err != nil {
		t.Fatal(err)
	}
}

func deleteEvents(t *testing.T, cluster *testenv.ControlPlane, namespace string) {
	t.Helper()
	events := kubernetes.NewForConfigOrDie(cluster.Config()).CoreV1().Events(namespace)
	if err := events.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}); err != nil {
		t.Fatal(err)
	}
	if left := stored.List(t, cluster, namespace); len(left) != 0 {
		t.Fatalf("%d Events are left", len(left))
	}
}
