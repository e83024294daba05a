package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"hash/fnv"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

// memoryServer is an apiserver as a sink needs it, with faults. Faults are drawn for the
// n-th request of each name, so they do not depend on the order of series.
type memoryServer struct {
	seed   uint64
	faults faults
	late   sync.WaitGroup // delayed requests

	mu      sync.Mutex
	events  map[string]*corev1.Event // by name: there is one namespace
	gone    []*corev1.Event          // expired, as they were
	calls   map[string]uint64        // by name
	version int
	writes  map[string]int // by subject
	inDoubt int64          // weight that was counted, with the response lost
}

var _ sink.Client = &memoryServer{}

// faults are probabilities.
type faults struct {
	lost    float64 // the request or its response
	busy    float64 // an error that is retried
	refused float64 // an error that is not
	slow    time.Duration
}

func newMemoryServer(seed uint64, f faults) *memoryServer {
	return &memoryServer{seed: seed, faults: f, events: map[string]*corev1.Event{}, calls: map[string]uint64{}, writes: map[string]int{}}
}

var eventsResource = schema.GroupResource{Resource: "events"}

// Create implements sink.Client.
func (m *memoryServer) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	event = event.DeepCopy()
	return m.call(ctx, event.Name, func() (*corev1.Event, int64, error) {
		if m.events[event.Name] != nil {
			return nil, 0, apierrors.NewAlreadyExists(eventsResource, event.Name)
		}
		created := event.DeepCopy()
		created.UID = types.UID("uid-" + strconv.Itoa(m.version))
		return m.store(created), stored.Count(created), nil
	})
}

// Patch implements sink.Client.
func (m *memoryServer) Patch(ctx context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	return m.call(ctx, name, func() (*corev1.Event, int64, error) {
		before := m.events[name]
		if before == nil {
			return nil, 0, apierrors.NewNotFound(eventsResource, name)
		}
		changed, err := patched(before, patch)
		switch {
		case err != nil:
			return nil, 0, apierrors.NewBadRequest(err.Error())
		case changed.ResourceVersion != before.ResourceVersion:
			return nil, 0, apierrors.NewConflict(eventsResource, name, errors.New("it has been modified"))
		case string(patch) == "{}":
			return before.DeepCopy(), 0, nil
		}
		return m.store(changed), stored.Count(changed) - stored.Count(before), nil
	})
}

func patched(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	before, err := json.Marshal(event)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Event{})
	if err != nil {
		return nil, err
	}
	changed := &corev1.Event{}
	return changed, json.Unmarshal(after, changed)
}

// store keeps an Event as its newest version. The mutex must be held.
func (m *memoryServer) store(event *corev1.Event) *corev1.Event {
	m.version++
	event.ResourceVersion = strconv.Itoa(m.version)
	m.events[event.Name] = event
	m.writes[event.InvolvedObject.Name+" "+event.Type]++
	return event.DeepCopy()
}

// writesBySubject returns the number of writes by object and type.
func (m *memoryServer) writesBySubject() map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return maps.Clone(m.writes)
}

// effect performs a request. It returns the response, and the increase of the count. The
// mutex is held.
type effect func() (answer *corev1.Event, counted int64, err error)

// call performs a request, or draws a fault.
func (m *memoryServer) call(ctx context.Context, name string, do effect) (*corev1.Event, error) {
	rng := m.draws(name)
	if err := await.Sleep(ctx, time.Duration(rng.Float64()*float64(m.faults.slow))); err != nil {
		return nil, err // before the request
	}
	switch p := rng.Float64(); {
	case p < m.faults.lost:
		return m.lose(ctx, rng, do)
	case p < m.faults.lost+m.faults.busy:
		return nil, []error{
			apierrors.NewTooManyRequests("later", rng.IntN(3)),
			apierrors.NewServiceUnavailable("later"),
			apierrors.NewTimeoutError("later", rng.IntN(3)),
		}[rng.IntN(3)]
	case p < m.faults.lost+m.faults.busy+m.faults.refused:
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Event"}, name, nil)
	}
	m.mu.Lock()
	event, counted, err := do()
	m.mu.Unlock()
	if slow := await.Sleep(ctx, time.Duration(rng.Float64()*float64(m.faults.slow))); slow != nil {
		m.mu.Lock()
		m.inDoubt += counted
		m.mu.Unlock()
		return nil, slow // after the request
	}
	return event, err
}

// lose loses a request or its response.
func (m *memoryServer) lose(ctx context.Context, rng *rand.Rand, do effect) (*corev1.Event, error) {
	after := time.Duration(rng.Int64N(int64(30 * time.Second)))
	switch rng.IntN(5) {
	case 0: // the connection breaks before the request
		return nil, errors.New("connection reset by peer")
	case 1: // the request is lost
		<-ctx.Done()
		return nil, ctx.Err()
	case 2: // the connection breaks before the response
		m.performUnanswered(do)
		return nil, errors.New("unexpected EOF")
	case 3: // the response is lost
		m.performUnanswered(do)
		<-ctx.Done()
		return nil, ctx.Err()
	default: // the request takes effect after its error
		m.late.Go(func() {
			time.Sleep(after)
			m.performUnanswered(do)
		})
		return nil, apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
	}
}

// performUnanswered performs a request whose response is lost.
func (m *memoryServer) performUnanswered(do effect) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, counted, _ := do()
	m.inDoubt += counted
}

// draws returns the random source of the next request of a name.
func (m *memoryServer) draws(name string) *rand.Rand {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.calls[name]++
	h := fnv.New64a()
	h.Write([]byte(name))
	return rand.New(rand.NewPCG(m.seed^h.Sum64(), m.calls[name]))
}

// expire deletes one of the Events.
func (m *memoryServer) expire(rng *rand.Rand) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if names := slices.Sorted(maps.Keys(m.events)); len(names) > 0 {
		name := names[rng.IntN(len(names))]
		m.gone = append(m.gone, m.events[name])
		delete(m.events, name)
	}
}

// all returns all Events, expired ones included.
func (m *memoryServer) all() (out []corev1.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, event := range slices.AppendSeq(slices.Clone(m.gone), maps.Values(m.events)) {
		out = append(out, *event)
	}
	return out
}

// modelEvent draws an Event of a few objects, reasons and messages, so that there are
// repeats, groups and conflicts.
func modelEvent(rng *rand.Rand) (*corev1.Event, occurrence.API) {
	name := "web-" + strconv.Itoa(rng.IntN(3))
	event := &corev1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: "ns"},
		InvolvedObject:      corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: name, UID: types.UID("uid-" + name)},
		ReportingController: "tester", ReportingInstance: "tester-0",
		Type:    []string{corev1.EventTypeNormal, corev1.EventTypeWarning}[rng.IntN(2)],
		Reason:  "Reason" + strconv.Itoa(rng.IntN(2)),
		Message: "message " + strconv.Itoa(rng.IntN(1+rng.IntN(12))),
	}
	if rng.IntN(4) > 0 {
		return event, occurrence.CoreV1
	}
	event.Action = "Acting"
	event.EventTime = metav1.NewMicroTime(time.Now())
	return event, occurrence.EventsV1
}
