package soak

import (
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/faultproxy"
	"github.com/eventd/eventd/test/figures"
	"github.com/eventd/eventd/test/longrun"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

var outageFigures = figures.NewTable("A whole pipeline whose apiserver is away for a while, under load all the time",
	"apiserver", "away, s", "runs", "occurrences", "steady writes/s", "drain writes/s", "drain/steady",
	"most series pending", "most occurrences pending", "live heap added, MiB", "lost", "counted twice", "duplicate Events", "uncertain")

// statedMemory is the memory of full stations by docs/sizing.md: of 32,768 queued
// occurrences, 40,000 pending series, their occurrences, 16,384 idle series, and by
// docs/correlation.md of a correlator.
const statedMemory = (16 + 40 + 192 + 16 + 65) << 20

// outages are repeated.
type outages struct {
	away, steady, drained, ratio, series, pending, heap []float64
	recorded, uncertain                                 int64
	stored.Difference
}

func (o *outages) figure(apiserver string) {
	outageFigures.Add(apiserver, figures.Spread(o.away...), len(o.away), o.recorded,
		figures.Spread(o.steady...), figures.Spread(o.drained...), figures.Spread(o.ratio...),
		figures.Spread(o.series...), figures.Spread(o.pending...), figures.Spread(o.heap...),
		o.Lost, o.Twice, o.Duplicates, o.uncertain)
}

// outage is one pipeline with everything at its defaults.
type outage struct {
	*pipeline.Pipeline
	t        *testing.T
	registry *prometheus.Registry
	gauges   *gauges
	endRead  func()
	load     *load
	sums     *outages
}

func newOutage(t *testing.T, config *rest.Config, namespace string, sums *outages) *outage {
	o := &outage{t: t, registry: prometheus.NewRegistry(), sums: sums}
	options := pipeline.DefaultOptions()
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
	o.gauges, o.endRead = readGauges(t, o.registry)
	t.Cleanup(o.endRead)
	return o
}

// saturate measures the rate of writes while more is pending than can be in flight. It
// does not measure the beginning, when the sink's limit allows a burst.
func (o *outage) saturate() (writesPerSecond float64) {
	backlog := longrun.Either[int64](2000, 300)
	first, all := longrun.Either(2000., 50), longrun.Either(8000., 250)
	var from, to reading
	await.Within(o.t, deadline(), "the writes that are measured", func() bool {
		for o.Totals().Pending() < backlog {
			o.load.newSeries()
		}
		to = o.gauges.last()
		if from.written == 0 && to.written >= first {
			from = to
		}
		return to.written >= all && to.written > from.written
	})
	return rate(from, to)
}

// belowLimit reports whether less than half of the pending limit is used. Above the
// limit occurrences are dropped, which these tests must avoid on a busy machine, too.
func (o *outage) belowLimit() bool {
	return o.gauges.last().series < float64(sink.DefaultOptions().MaxPendingSeries)/2
}

// waitAway waits until the apiserver has been away for a minute, or in a short run until
// some more was recorded and not written.
func (o *outage) waitAway() {
	began := time.Now()
	if *longrun.Full {
		_ = await.Sleep(o.t.Context(), time.Minute)
	} else {
		before := o.load.total()
		await.Within(o.t, deadline(), "occurrences are recorded, and not written, while the apiserver is away", func() bool {
			return o.load.total() >= before+300 && metrics.Gather(o.t, o.registry).Sum("eventd_sink_retries_total") > 0
		})
	}
	o.sums.away = append(o.sums.away, time.Since(began).Seconds())
}

// waitDrained waits until all is written that was due at the first write after a
// reading, and adds the rate of these writes.
func (o *outage) waitDrained(since reading, steady float64) {
	var from, to reading
	await.Within(o.t, deadline(), "everything that was due is written", func() (ok bool) {
		from, to, ok = o.gauges.drain(since)
		return ok
	})
	drained := rate(from, to)
	o.sums.steady = append(o.sums.steady, steady)
	o.sums.drained = append(o.sums.drained, drained)
	o.sums.ratio = append(o.sums.ratio, drained/steady)
}

// finish records something of old series, shuts the pipeline down, and checks that
// all was written, within the limits.
func (o *outage) finish() {
	for i := range 100 {
		o.load.record(fmt.Sprint("pod-", i))
	}
	ctx, cancel := bounded(o.t)
	defer cancel()
	if err := o.Shutdown(ctx); err != nil {
		o.t.Error(err)
	}
	o.endRead()
	totals := o.Totals()
	wantAllWritten(o.t, totals, metrics.Gather(o.t, o.registry))
	if recorded := o.load.recorded.Sum(); totals.Recorded != recorded {
		o.t.Errorf("%d occurrences are recorded, and %d in the ledger", recorded, totals.Recorded)
	}
	o.sums.recorded += totals.Recorded
	o.sums.uncertain += totals.Outcomes[occurrence.Uncertain]
	o.wantBounded()
}

func (o *outage) wantBounded() {
	limits := sink.DefaultOptions()
	peak := o.gauges.peak()
	if peak.series > float64(limits.MaxPendingSeries) {
		o.t.Errorf("%v series were pending at once", peak.series)
	}
	added := int64(peak.heap) - int64(o.gauges.baseline)
	if added > statedMemory {
		o.t.Errorf("the live heap grew by %d MiB, and may by %d", added>>20, statedMemory>>20)
	}
	o.sums.series = append(o.sums.series, peak.series)
	o.sums.pending = append(o.sums.pending, peak.pending)
	o.sums.heap = append(o.sums.heap, float64(added)/(1<<20))
}

// repeatOutages makes the runs of a test one after the other, and adds a row.
func repeatOutages(t *testing.T, apiserver string, run func(t *testing.T, cluster *testenv.ControlPlane, sums *outages)) {
	cluster := testenv.StartForTest(t, testenv.Options{})
	sums := &outages{}
	repetitions := longrun.Either(3, 1)
	progress := longrun.NewProgress(t, repetitions)
	for i := range repetitions {
		t.Run(fmt.Sprint("run ", i+1), func(t *testing.T) { run(t, cluster, sums) })
		progress.Step()
	}
	sums.figure(apiserver)
}

// run ends the apiserver by down, under load, and brings it back by up.
func (o *outage) run(down, up func()) {
	steady := o.saturate()
	endLoad := o.load.goOn(steady/3, o.belowLimit)
	defer endLoad()
	down()
	o.waitAway()
	away := o.gauges.last()
	up()
	o.waitDrained(away, steady)
	endLoad()
	o.finish()
}

// The apiserver is killed under load and comes back: everything is written that
// was recorded before, meanwhile and after.
func TestApiserverThatIsAwayCostsNothing(t *testing.T) {
	repeatOutages(t, "killed, and back with its data", func(t *testing.T, cluster *testenv.ControlPlane, sums *outages) {
		o := newOutage(t, cluster.Config(), cluster.Namespace(t), sums)
		o.run(func() {
			if err := cluster.Signal(syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}, func() { up(t, cluster) })
		sums.Add(wantStored(t, cluster, o.load.recorded))
	})
}

// The same, and all Events are deleted before the apiserver can be reached again, as
// if they had expired: what is pending is created again, and nothing else.
func TestEventsThatExpireDuringAnOutageAreCreatedAgainWithWhatIsOwed(t *testing.T) {
	repeatOutages(t, "stopped, and back without Events", func(t *testing.T, cluster *testenv.ControlPlane, sums *outages) {
		proxy := faultproxy.New(t, cluster.Config(), *firstSeed)
		o := newOutage(t, proxy.Config(), cluster.Namespace(t), sums)
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
		sums.Add(d)
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
