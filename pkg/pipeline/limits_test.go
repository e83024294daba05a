package pipeline

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/json"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/test/await"
)

// forgetful is an apiserver that stores nothing. It calls created with the body of each request.
func forgetful(t *testing.T, created func(body []byte)) *httptest.Server {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		body, err := io.ReadAll(req.Body)
		var event corev1.Event
		if err == nil {
			err = json.Unmarshal(body, &event)
		}
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		created(body)
		event.UID, event.ResourceVersion = "u", "1"
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(&event)
	}))
	t.Cleanup(s.Close)
	return s
}

// recordToServer starts a broadcaster that writes to a server with a rate of requests.
func recordToServer(t *testing.T, s *httptest.Server, qps float32, opts ...BroadcasterOption) (*RecordBroadcaster, record.EventRecorderLogger) {
	t.Helper()
	client, err := kubernetes.NewForConfig(&rest.Config{Host: s.URL, QPS: qps})
	if err != nil {
		t.Fatal(err)
	}
	return recordTo(coreSink(client), opts...)
}

// The defaults state what a broadcaster takes while nothing can be written, whatever was recorded
// and written before.
func TestBroadcasterTakesAtMost16MiBWhileTheApiserverIsAway(t *testing.T) {
	const limit = 16 << 20
	long := strings.Repeat("x", 16_000)
	for name, message := range map[string]func(i int) string{
		"usual Events": func(i int) string {
			return fmt.Sprintf("0/%d nodes are available: 3 Insufficient cpu, 2 node(s) had untolerated taint {node-role.kubernetes.io/control-plane: }. "+
				"preemption: 0/5 nodes are available: 5 No preemption victims found for incoming pod.", i)
		},
		"short messages": func(int) string { return "x" },
		"long messages":  func(i int) string { return fmt.Sprint(i, long) },
	} {
		t.Run(name, func(t *testing.T) {
			b := fillWhileAway(t, message)
			full := heapBytes()
			b.Shutdown()
			b = nil
			var took int64
			await.Until(t, "more than half of the limit was taken, and is released", func() bool {
				took = full - heapBytes()
				return took > limit/2
			})
			if t.Logf("%d KiB", took>>10); took > limit {
				t.Errorf("%d KiB, want at most %d", took>>10, limit>>10)
			}
		})
	}
}

// fillWhileAway returns a broadcaster that knows as many idle series as it may, and then has recorded
// more than it may keep while the apiserver is away.
func fillWhileAway(t *testing.T, message func(i int) string) *RecordBroadcaster {
	const tooMany = 7000
	s := forgetful(t, func([]byte) {})
	b, r := recordToServer(t, s, -1, with(func(o *Options) {
		o.Sink.QPS, o.DrainTimeout = math.Inf(1), time.Millisecond
	}))
	idle := b.stages.options.Sink.MaxIdleSeries
	for i := range idle {
		r.Event(podIn("written", fmt.Sprint("web-", i)), "Normal", "Tested", message(i))
		if i%100 == 99 { // so that nothing is dropped
			await.Until(t, "all is written", func() bool { return ledgers(b)[0].Pending() == 0 })
		}
	}
	await.Until(t, "all is written", func() bool { return ledgers(b)[0].Pending() == 0 })
	s.Close()
	for i := range tooMany {
		r.Event(podIn(fmt.Sprint("ns-", i%50), fmt.Sprint("web-6d4cf56db6-", i)), "Warning", "FailedScheduling", message(i))
		if i%1000 == 999 {
			await.Until(t, "the queue is empty", func() bool { return b.queued() == 0 })
		}
	}
	totals := ledgers(b)[0]
	if totals.Written() != int64(idle) || totals.Dropped[occurrence.PendingFull] == 0 || totals.Dropped[occurrence.QueueFull] != 0 {
		t.Fatalf("%d are written, and dropped %v", totals.Written(), totals.Dropped)
	}
	return b
}

// queued returns the number of occurrences that the sink has not received yet.
func (b *RecordBroadcaster) queued() (n int64) {
	for w := range b.stages.writers {
		n += w.ledger.Totals().Pending() - w.outlet.Pending().Occurrences
	}
	return n
}

func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // pools keep what they had for one more
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// A client of the default rest.Config has 5 requests per second, of which the sink uses half: 5,000
// Events take 33 minutes. A Warning does not wait for them, whatever its namespace is.
func TestWarningsDoNotWaitForThousandsOfNormalEvents(t *testing.T) {
	const normals = 5000
	warnings := make(chan string, 10)
	var written atomic.Int64
	s := forgetful(t, func(body []byte) {
		written.Add(1)
		if bytes.Contains(body, []byte(`"type":"Warning"`)) {
			warnings <- string(body)
		}
	})
	b, r := recordToServer(t, s, 0, with(func(o *Options) { o.DrainTimeout = time.Millisecond }))
	for i := range normals {
		r.Event(podIn(fmt.Sprint("ns-", i%500), fmt.Sprint("web-", i)), "Normal", "Tested", "")
	}
	await.Until(t, "all are pending", func() bool { return b.queued() == 0 })
	began := time.Now()
	for i, namespace := range []string{"ns-0", "another"} {
		r.Event(podIn(namespace, "web-0"), "Warning", "Failed", "")
		select {
		case <-warnings:
		case <-time.After(time.Minute):
			t.Fatalf("warning %d is not written after a minute", i)
		}
	}
	t.Logf("written after %v, %d Events in all", time.Since(began), written.Load())
	if totals := ledgers(b)[0]; totals.Pending() < normals-100 || totals.Outcomes[occurrence.Dropped] != 0 {
		t.Errorf("ledger %+v: the Normal Events are not pending", totals)
	}
	b.Shutdown()
}
