package pipeline

import (
	"errors"
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/broadcaster"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// reported returns an occurrence of a client that counts by itself.
func reported(namespace, client, message string, total int64) *occurrence.Occurrence {
	event := &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: namespace},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "web-0", UID: "u", APIVersion: "v1"},
		Source:         source, Type: "Warning", Reason: "Failed", Message: message,
	}
	return &occurrence.Occurrence{Event: event, API: occurrence.CoreV1, Weight: 1, Client: client, Total: total}
}

func TestFlushWritesWhatIsDeferredAndThePipelineContinues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := DefaultOptions()
		o.Correlator.Heartbeat = correlator.MaxHeartbeat
		p := startPipeline(t, o, newMemoryServer(0, faults{}))
		r := p.NewRecorder(scheme.Scheme, source)
		for round := range int64(3) {
			recordPods(r, 1)
			synctest.Wait()
			if totals := p.Totals(); totals.Written() != max(1, round) || p.writer.sink.Pending().Occurrences != min(1, round) {
				t.Errorf("before a flush: %+v", totals)
			}
			p.Flush(t.Context())
			if totals := p.Totals(); totals.Written() != round+1 || totals.Pending() != 0 {
				t.Errorf("after a flush: %+v", totals)
			}
		}
		drain(t, p)
	})
}

// Each Event has one counter, though a client combines the group as well.
func TestClientCombinesTheGroupThatIsCombinedHere(t *testing.T) {
	m := newMemoryServer(0, faults{})
	p := startPipeline(t, DefaultOptions(), m)
	const each = 40
	for i := range each {
		p.Record(reported("ns", fmt.Sprint("single-", i), fmt.Sprint("message ", i), 1))
		p.Record(reported("ns", "combined", identity.CombinedPrefix+fmt.Sprint("m", i), int64(i+1)))
		p.writer.sink.Flush(t.Context()) // so that there are many writes
	}
	totals := drain(t, p)
	if sum := sumOf(m.all()); totals.Written() != 2*each || sum != 2*each {
		t.Errorf("recorded %d, settled as %v, stored %d", totals.Recorded, totals.Outcomes, sum)
	}
}

// What a rule of the caller drops is accounted for before the start, while the pipeline runs and after
// its shutdown, and never written.
func TestFilteredOccurrencesAreCountedAndNotWritten(t *testing.T) {
	m := newMemoryServer(0, faults{})
	created, err := New(t.Context(), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	p := drainable{created}
	settled := 0
	filter := func(weight int64) {
		o := reported("ns", "a", "m", weight)
		o.Weight = weight
		o.Settled = func(s occurrence.Settlement) {
			settled++
			if s.Outcome != occurrence.Filtered || s.Reason != "noise" || s.Counted() {
				t.Errorf("settled as %+v", s)
			}
		}
		p.Filter(o, "noise")
	}
	filter(1)
	if err := p.StartSink(m); err != nil {
		t.Fatal(err)
	}
	filter(2)
	p.Record(reported("ns", "a", "m", 1))
	totals := drain(t, p)
	filter(4)
	if settled != 3 || totals.Filtered["noise"] != 3 || totals.Recorded != 4 || sumOf(m.all()) != 1 {
		t.Errorf("%d are settled: %+v", settled, totals)
	}
	if totals = p.Totals(); totals.Outcomes[occurrence.Filtered] != 7 || totals.Pending() != 0 {
		t.Errorf("after the shutdown: %+v", totals)
	}
}

// Occurrences with a budget of their own are written by that.
func TestOccurrencesHaveABudgetOfTheirOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemoryServer(0, faults{})
		p := startPipeline(t, DefaultOptions(), m)
		slow, err := occurrence.NewBudget("slow", 2, 1./3600)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 10 {
			for _, b := range []*occurrence.Budget{slow, nil} {
				o := reported("ns", "", fmt.Sprint("message ", i, b == nil), 1)
				o.Event.Reason = fmt.Sprint("Reason", i, b == nil)
				o.Budget = b
				p.Record(o)
			}
		}
		synctest.Wait()
		if totals := p.Totals(); totals.Written() != 12 || totals.Pending() != 8 {
			t.Errorf("at once: %+v", totals)
		}
		if totals := drain(t, p); totals.Written() != 20 || sumOf(m.all()) != 20 {
			t.Errorf("in all: %+v", totals)
		}
	})
}

func TestRecordingBeforeStartAndAfterShutdownIsCounted(t *testing.T) {
	created, err := New(t.Context(), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	p := drainable{created}
	r := p.NewRecorder(scheme.Scheme, source)
	r.Event(podIn("ns", "web-0"), "Normal", "Early", "")
	r.Event(nil, "Normal", "Nothing", "")
	drain(t, p)
	drain(t, p)
	r.Event(podIn("ns", "web-0"), "Normal", "Late", "")
	wantEqual(t, "dropped", map[occurrence.Reason]int64{
		occurrence.NoSink: 1, occurrence.Malformed: 1, occurrence.Shutdown: 1,
	}, settled(t, p).Dropped)
	if err := p.StartSink(nil); err == nil {
		t.Error("a sink was started after the shutdown")
	}
}

func TestShutdownReportsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const recorded = 25
		refuses := &memorySink{before: refuseFor(time.Hour)}
		client, err := newCustomSink(recordCalls{refuses}, &traits{}, sink.DefaultOptions())
		if err != nil {
			t.Fatal(err)
		}
		p := startPipeline(t, DefaultOptions(), client)
		if err := p.StartSink(nil); err == nil {
			t.Error("a second sink was started")
		}
		recordPods(p.NewRecorder(scheme.Scheme, source), recorded)
		var undelivered *UndeliveredError
		err = wantShutdownWithin(t, p, 300*time.Millisecond, shutdownLimit)
		if !errors.As(err, &undelivered) || undelivered.Occurrences != recorded || undelivered.Series != recorded {
			t.Errorf("the shutdown reports %v", err)
		}
		if totals := settled(t, p); totals.Dropped[occurrence.Shutdown] != recorded {
			t.Errorf("ledger %+v", totals)
		}
	})
}

// terminating returns the apiserver's error for a namespace that is being deleted.
func terminating(event *corev1.Event) error {
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden,
		Message: "namespace " + event.Namespace + " is being terminated",
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}},
	}}
}

// k/k#68393: drops of a full queue are counted. k/k#23644: so are those of a terminating
// namespace. Neither is logged.
func TestDropsAreCountedAndQuiet(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true), ktesting.Verbosity(2)))
		b, r := recordTo(&memorySink{before: terminating}, with(func(o *Options) { o.QueueCapacity = 10 }),
			WithContext(klog.NewContext(t.Context(), logger)))
		const recorded = 10_000
		recordPods(r, recorded)
		totals := drain(t, b)
		full, refused := totals.Dropped[occurrence.QueueFull], totals.Dropped[occurrence.NamespaceTerminating]
		if refused == 0 || full+refused != recorded {
			t.Errorf("ledger %+v", totals)
		}
		if lines := logger.GetSink().(ktesting.Underlier).GetBuffer().Data(); len(lines) != 0 {
			t.Errorf("%d lines are logged, such as %v", len(lines), lines[0])
		}
	})
}

// The queue of a sink has the capacity of the options. When it is full, an occurrence is dropped or waits, as they say.
func TestQueueHasItsCapacityAndPolicy(t *testing.T) {
	for policy, dropped := range map[broadcaster.Policy]int64{broadcaster.DropWhenFull: 1, broadcaster.WaitWhenFull: 0} {
		synctest.Test(t, func(t *testing.T) {
			release := make(chan struct{})
			o := DefaultOptions()
			o.QueueCapacity, o.WhenFull, o.Clock = 3, policy, waitingClock{func() { <-release }}
			p := startPipeline(t, o, newMemoryServer(0, faults{}))
			record := func() { p.Record(reported("ns", "client", "it was tested", 1)) }
			record()
			synctest.Wait() // it is not in the queue any more
			for range o.QueueCapacity {
				record()
			}
			returned := make(chan struct{})
			go func() { defer close(returned); record() }()
			synctest.Wait()
			select {
			case <-returned:
				if dropped == 0 {
					t.Error("it does not wait for the queue")
				}
			default:
				if dropped != 0 {
					t.Error("it waits for the queue")
				}
			}
			close(release)
			<-returned
			if totals := drain(t, p); totals.Recorded != 5 || totals.Dropped[occurrence.QueueFull] != dropped {
				t.Errorf("ledger %+v", totals)
			}
		})
	}
}
