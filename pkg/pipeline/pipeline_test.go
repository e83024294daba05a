package pipeline

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/internal/identity"
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
