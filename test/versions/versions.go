// Package versions has an apiserver that keeps the resourceVersion of each Event only, so that its own memory does
// not grow, and Events of Pods for it: what the memory of series is measured with.
package versions

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/pkg/occurrence"
)

// Server is a sink.Client. Its Events cannot be read. It is safe for use by many goroutines.
type Server struct {
	requests atomic.Int64
	mu       sync.Mutex
	last     uint64
	of       []uint64 // by the number in the name
}

// New returns a server for the Events of PodEvent, with numbers below n.
func New(n int) *Server { return &Server{of: make([]uint64, n), last: 1 << 32} }

// Requests returns how many there were.
func (v *Server) Requests() int64 { return v.requests.Load() }

// Create implements sink.Client.
func (v *Server) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	v.requests.Add(1)
	v.mu.Lock()
	defer v.mu.Unlock()
	at := v.at(event.Name)
	if *at != 0 {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), event.Name)
	}
	return v.store(at, event), nil
}

// Patch implements sink.Client.
func (v *Server) Patch(_ context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
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

func (v *Server) at(name string) *uint64 {
	var i int
	if _, err := fmt.Sscanf(name, "web-%d.", &i); err != nil {
		panic(err)
	}
	return &v.of[i]
}

// store stores a version. An Event keeps its UID.
func (v *Server) store(at *uint64, event *corev1.Event) *corev1.Event {
	v.last++
	*at = v.last
	out := event.DeepCopy()
	out.ResourceVersion = strconv.FormatUint(v.last, 10)
	out.UID = types.UID(fmt.Sprintf("0a1b2c3d-0000-1111-2222-%.12s", fmt.Sprintf("%x", event.Name)+"000000000000"))
	return out
}

// PodEvent returns what a kubelet reports of the i-th Pod, for the n-th time.
func PodEvent(i int, n int64, now time.Time) *occurrence.Occurrence {
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
