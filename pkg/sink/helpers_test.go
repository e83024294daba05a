package sink

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/stored"
	"github.com/eventd/eventd/test/testenv"
)

// bench is one sink under test.
type bench struct {
	*Sink
	t         testing.TB
	ledger    *ledger.Ledger
	trail     *account
	namespace string
}

func unlimited() Options {
	o := DefaultOptions()
	o.QPS = math.Inf(1)
	return o
}

func start(ctx context.Context, t testing.TB, c Client, o Options) *bench {
	t.Helper()
	b := &bench{t: t, ledger: ledger.New(), trail: &account{}, namespace: "ns"}
	o.Trail = b.trail
	var err error
	if b.Sink, err = New(ctx, c, b.ledger, o); err != nil {
		t.Fatal(err)
	}
	return b
}

// context has the log, if there is one.
func (f *fake) context(t *testing.T) context.Context {
	if f.log == nil {
		return t.Context()
	}
	return klog.NewContext(t.Context(), funcr.New(func(_, line string) { f.log(line) }, funcr.Options{}))
}

// bubble runs a sink in front of a fake apiserver, with the clock of a bubble. In the end
// nothing must be pending, and what returns later must change nothing.
func bubble(t *testing.T, f *fake, change func(*Options), test func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f.start()
		o := unlimited()
		if change != nil {
			change(&o)
		}
		b := start(f.context(t), t, f.client(), o)
		defer b.end(f) // also after Fatal: the bubble has to end
		test(t, b)
	})
}

// end closes the sink of a bubble and releases the requests.
func (b *bench) end(f *fake) {
	b.closeWithin(time.Second)
	before := b.ledger.Totals().Outcomes
	f.release()
	pass(time.Hour)
	if after := b.ledger.Totals().Outcomes; !maps.Equal(before, after) {
		b.t.Errorf("settled %v, and %v after all requests have returned", before, after)
	}
	if n := len(b.requests.abandoned) + len(b.requests.abandonedIn) + len(b.requests.inFlight); n != 0 {
		b.t.Errorf("requests %+v, though all have returned", b.requests)
	}
	if len(f.twice) > 0 {
		b.t.Errorf("two requests were in flight for each of %v", f.twice)
	}
	if s := b.fair; s.series != 0 || len(s.flows)+len(s.namespaces.byName)+len(s.tenants.byName)+
		s.namespaces.ranking.Len()+s.tenants.ranking.Len() != 0 {
		b.t.Errorf("usage %+v, though nothing is pending", s)
	}
}

// closeWithin closes the sink, and checks that it takes no longer and that everything is
// accounted for.
func (b *bench) closeWithin(limit time.Duration) (left Pending) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(b.t.Context()), limit)
	defer cancel()
	began := time.Now()
	left = b.Close(ctx)
	if took := time.Since(began); took > limit+2*grace.Period {
		b.t.Errorf("closed after %v, of %v", took, limit)
	}
	if got := b.ledger.Totals(); got.Pending() != 0 || b.holds() != (totals{}) {
		b.t.Errorf("recorded %d, settled %v, total %+v", got.Recorded, got.Outcomes, b.total)
	}
	b.trail.want(b.t, b.ledger.Totals())
	return left
}

// drain closes a sink in front of a real apiserver, which can write everything.
func (b *bench) drain() ledger.Totals {
	b.t.Helper()
	if left := b.closeWithin(time.Minute); left.Series != 0 {
		b.t.Errorf("not written within a minute: %+v", left)
	}
	return b.ledger.Totals()
}

// flush waits until everything has settled.
func (b *bench) flush() {
	b.t.Helper()
	if left := b.Flush(b.t.Context()); left != (Pending{}) {
		b.t.Errorf("pending after a flush: %+v", left)
	}
}

// change changes an occurrence before it is recorded.
type change = func(*occurrence.Occurrence)

// record adds one occurrence of a series.
func (b *bench) record(series int, changes ...change) {
	b.recordLater(series, 0, changes...)
}

// recordLater adds one whose write is deferred.
func (b *bench) recordLater(series int, delay time.Duration, changes ...change) {
	event := b.event(series)
	o := &occurrence.Occurrence{Event: event, Weight: 1, Recorded: time.Now()}
	for _, c := range changes {
		c(o)
	}
	b.ledger.Record(o)
	b.Add(o, occurrence.Target{Key: occurrence.KeyOf(identity.Of(event)), Event: event, Name: event.InvolvedObject.Name}, delay)
}

// event returns an Event of a series.
func (b *bench) event(series int) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: b.namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: b.namespace, Name: fmt.Sprint("pod-", series)},
		Reason:         "Tested", Message: "it was", Type: "Normal",
		FirstTimestamp: metav1.Now(), LastTimestamp: metav1.Now(),
	}
}

// key returns the key of a series.
func (b *bench) key(series int, changes ...change) occurrence.Key {
	o := &occurrence.Occurrence{Event: b.event(series)}
	for _, c := range changes {
		c(o)
	}
	return occurrence.KeyOf(identity.Of(o.Event))
}

// recordEach adds one occurrence of each of some series.
func (b *bench) recordEach(series int, changes ...change) {
	for i := range series {
		b.record(i, changes...)
	}
}

func newStyle(o *occurrence.Occurrence) {
	o.API = occurrence.EventsV1
	o.Event.EventTime = metav1.NowMicro()
	o.Event.FirstTimestamp, o.Event.LastTimestamp = metav1.Time{}, metav1.Time{}
	o.Event.ReportingController, o.Event.ReportingInstance, o.Event.Action = "example.com/test", "test-0", "Testing"
}

func normal(*occurrence.Occurrence) {}

func warning(o *occurrence.Occurrence) { o.Event.Type = corev1.EventTypeWarning }

func inNamespace(name string) change {
	return func(o *occurrence.Occurrence) { o.Event.Namespace, o.Event.InvolvedObject.Namespace = name, name }
}

func by(user string) change { return func(o *occurrence.Occurrence) { o.User = user } }

// byClient reports the total of a client.
func byClient(client string, total int64) change {
	return func(o *occurrence.Occurrence) { o.Client, o.Total = client, total }
}

func labelled(value string) change {
	return func(o *occurrence.Occurrence) { o.Event.Labels = map[string]string{"l": value} }
}

func onSettled(f func(occurrence.Settlement)) change {
	return func(o *occurrence.Occurrence) { o.Settled = f }
}

// awaited has a caller that waits for the outcome.
func awaited(o *occurrence.Occurrence) { o.Settled = func(occurrence.Settlement) {} }

// acknowledge has a caller that waits only until the write is deferred.
func acknowledge(o *occurrence.Occurrence) {
	awaited(o)
	o.Deferred = func() {}
}

// ends are numbers of occurrences that have settled: by reason of those that were dropped,
// and by outcome of the others. All that were written are one.
type ends map[any]int64

const written occurrence.Outcome = "written"

func (b *bench) wantEnds(want ends) {
	b.t.Helper()
	got, totals := ends{}, b.ledger.Totals()
	for reason, n := range totals.Dropped {
		got[reason] = n
	}
	for outcome, n := range map[occurrence.Outcome]int64{
		written: totals.Written(), occurrence.Replayed: totals.Outcomes[occurrence.Replayed],
		occurrence.Uncertain: totals.Outcomes[occurrence.Uncertain], occurrence.Found: totals.Outcomes[occurrence.Found],
		occurrence.HandedOver: totals.Outcomes[occurrence.HandedOver],
	} {
		if n > 0 {
			got[outcome] = n
		}
	}
	if !maps.Equal(got, want) {
		b.t.Errorf("settled %v, want %v", got, want)
	}
}

// replicated is after how long a follower holds what nobody waits for.
const replicated = 50 * time.Millisecond

// pass lets time pass, and waits until all goroutines are blocked.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// holds returns the totals of what is pending.
func (b *bench) holds() totals {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

// entries returns the number of pending entries.
func (b *bench) entries() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.pending {
		n += len(p.counter.Pending())
	}
	return n
}

func clientFor(t *testing.T, config *rest.Config) Updater {
	t.Helper()
	clients, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return NewClient(clients.CoreV1().RESTClient(), clients.EventsV1().RESTClient())
}

func connect(t *testing.T, config *rest.Config) Client {
	t.Helper()
	client, err := NewClientForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// newBench starts a sink in front of a real apiserver.
func newBench(t *testing.T, namespace string, c Client, o Options) *bench {
	b := start(t.Context(), t, c, o)
	b.namespace = namespace
	t.Cleanup(func() { b.closeWithin(time.Minute) })
	return b
}

func wantStored(t *testing.T, namespace string, objects int, count int64) {
	t.Helper()
	events := stored.List(t, testenv.Shared(t), namespace)
	sum := stored.Tally(events, func(*corev1.Event) string { return "" }).Sum()
	if len(events) != objects || sum != count {
		t.Errorf("%d Events with a count of %d in all are stored, want %d with %d", len(events), sum, objects, count)
	}
}

// faultyClient loses a tenth of the requests to a real apiserver, and a tenth of the answers.
type faultyClient struct{ Client }

var errLost = errors.New("connection lost")

func lose(send func() (*corev1.Event, error)) (*corev1.Event, error) {
	switch rand.IntN(10) {
	case 0:
		return nil, errLost
	case 1:
		send()
		return nil, errLost
	default:
		return send()
	}
}

func (c faultyClient) Create(ctx context.Context, api occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	return lose(func() (*corev1.Event, error) { return c.Client.Create(ctx, api, event) })
}

func (c faultyClient) Patch(ctx context.Context, api occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	return lose(func() (*corev1.Event, error) { return c.Client.Patch(ctx, api, namespace, name, patch) })
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(testenv.Runner(m)) }
