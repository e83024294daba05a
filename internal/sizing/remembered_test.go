package sizing

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// versions is an apiserver that keeps the resourceVersion of each Event only, so that its own memory
// does not grow. Its Events cannot be read.
type versions struct {
	requests atomic.Int64
	mu       sync.Mutex
	last     uint64
	of       []uint64 // by the number in the name
}

func (v *versions) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	v.requests.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.at(event.Name)
	if *at != 0 {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), event.Name)
	}
	return v.store(at, event), nil
}

func (v *versions) Patch(_ context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	v.requests.Add(1)
	event := &corev1.Event{}
	if err := json.Unmarshal(patch, event); err != nil || len(event.Annotations) == 0 {
		return nil, apierrors.NewBadRequest("there are no reads")
	}
	event.Namespace, event.Name = namespace, name
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.at(name)
	if strconv.FormatUint(*at, 10) != event.ResourceVersion {
		return nil, apierrors.NewConflict(corev1.Resource("events"), name, nil)
	}
	return v.store(at, event), nil
}

func (v *versions) at(name string) *uint64 {
	var i int
	if _, err := fmt.Sscanf(name, "web-%d.", &i); err != nil {
		panic(err)
	}
	return &v.of[i]
}

// store stores a version. An Event keeps its UID.
func (v *versions) store(at *uint64, event *corev1.Event) *corev1.Event {
	v.last++
	*at = v.last
	out := event.DeepCopy()
	out.ResourceVersion = strconv.FormatUint(v.last, 10)
	out.UID = types.UID(fmt.Sprintf("0a1b2c3d-0000-1111-2222-%.12s", fmt.Sprintf("%x", event.Name)+"000000000000"))
	return out
}

// A sink remembers each of 100,000 live series in less than 90 bytes, and each further occurrence of one
// is one request. The clients are kubelets that count by themselves. A correlator that knows as many
// subjects as it may takes the same for any number of series.
// The bytes include the index for the 200,000 series of the default, and the records of 1,000 namespaces.
func TestLiveSeriesAreRememberedInFewBytesAndNeedOneRequestEach(t *testing.T) {
	const (
		series = 100_000
		rounds = 3
		batch  = 5000 // below all limits of what is pending
	)
	server := &versions{of: make([]uint64, series), last: 1 << 32}
	o := app.NewOptions()
	o.Pipeline.Sink.QPS, o.Pipeline.Sink.Acknowledge = math.Inf(1), sink.AcknowledgeCommitted
	began := time.Now()
	at := func(round int) time.Time { return began.Add(time.Duration(round) * time.Minute) }
	empty := liveBytes()
	c, err := correlator.New(o.Pipeline.Correlator)
	if err != nil {
		t.Fatal(err)
	}
	for i := range series {
		c.Correlate(podEvent(i, 1, at(0)), at(0))
	}
	before := liveBytes()
	ends := ledger.New()
	s, err := sink.New(t.Context(), server, ends, o.Pipeline.Sink)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close(t.Context())
	for round := 1; round <= rounds; round++ {
		for i := range series {
			reported := podEvent(i, int64(round), at(round))
			d := c.Correlate(reported, at(round))
			if s.Add(reported, d.Target, d.Delay); i%batch == batch-1 {
				s.Flush(t.Context())
			}
		}
	}
	s.Flush(t.Context())
	if totals := ends.Totals(); totals.Written() != rounds*series {
		t.Errorf("settled %v: a series was forgotten, and read", totals.Outcomes)
	}
	took := float64(liveBytes()-before) / series
	each := float64(server.requests.Load()) / (rounds * series)
	t.Logf("%.1f bytes and %.3f requests for each; %d KiB for the correlator", took, each, (before-empty)>>10)
	if took > 90 || took < 40 || each > 1.1 {
		t.Errorf("%.1f bytes and %.2f requests for each", took, each)
	}
	runtime.KeepAlive(c)
	runtime.KeepAlive(server)
}

// podEvent returns what a kubelet reports of the i-th Pod, for the n-th time.
func podEvent(i int, n int64, now time.Time) *occurrence.Occurrence {
	namespace, name, node := fmt.Sprint("ns-", i%1000), fmt.Sprint("web-", i), fmt.Sprint("node-", i%5000)
	return &occurrence.Occurrence{
		Event: &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace},
			InvolvedObject: corev1.ObjectReference{
				APIVersion: "v1", Kind: "Pod", Namespace: namespace, Name: name, UID: types.UID("uid-of-" + name), FieldPath: "spec.containers{app}",
			},
			Reason: "BackOff", Message: "Back-off restarting failed container app in pod " + name, Type: "Warning",
			Source:              corev1.EventSource{Component: "kubelet", Host: node},
			ReportingController: "kubelet", ReportingInstance: node,
			Count: int32(n), FirstTimestamp: metav1.NewTime(now), LastTimestamp: metav1.NewTime(now),
		},
		Weight: 1, Client: name + ".17a2b3c4d5e6f708", Total: n, Recorded: now, User: "system:node:" + node,
	}
}
