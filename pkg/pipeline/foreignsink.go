package pipeline

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/eventd/eventd/internal/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// foreignCalls are what the two kinds of client-go's EventSink have in common.
// The event belongs to the callee.
type foreignCalls interface {
	create(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error)
}

// foreignSink makes a client of an EventSink of which nothing is known. Such a
// sink cannot be asked to read, may answer with nothing or with something else
// than what it stored, wants the whole Event with a patch, and may never return.
//
// So it is believed to store what it is given, and what it was given is
// remembered. A call that has not returned in time is left alone, and until it
// returns there is no other call for the same Event. No more calls run at once
// than the sink has workers.
type foreignSink struct {
	calls foreignCalls
	slots chan struct{} // holds an element for each call that runs

	mu      sync.Mutex
	stored  *simplelru.LRU[types.NamespacedName, *corev1.Event] // what was last given, under the name that we gave
	running map[types.NamespacedName]chan struct{}              // closed when the call for an Event returns
}

var _ sink.Client = &foreignSink{}

func newForeignSink(calls foreignCalls, o sink.Options) (*foreignSink, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("sink options: %w", err)
	}
	stored, err := simplelru.NewLRU[types.NamespacedName, *corev1.Event](o.MaxIdleSeries, nil)
	if err != nil {
		return nil, err
	}
	return &foreignSink{
		calls:   calls,
		slots:   make(chan struct{}, o.Concurrency),
		stored:  stored,
		running: make(map[types.NamespacedName]chan struct{}),
	}, nil
}

// Create implements sink.Client.
func (f *foreignSink) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	key := types.NamespacedName{Namespace: event.Namespace, Name: event.Name}
	given := event.DeepCopy()
	answer, err := f.call(ctx, key, func() (*corev1.Event, error) { return f.calls.create(ctx, given) })
	if err != nil {
		return nil, err
	}
	return f.remember(key, event.DeepCopy(), answer), nil
}

// Patch implements sink.Client. An empty patch asks for the Event. The sink does
// so only after it was told that the Event is not what it believed, which only a
// sink that passes requests on to an apiserver can tell; there an empty patch
// comes back with the Event.
func (f *foreignSink) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	event := f.lastGiven(key)
	if err := json.Unmarshal(patch, event); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	given := event.DeepCopy()
	answer, err := f.call(ctx, key, func() (*corev1.Event, error) { return f.calls.patch(ctx, given, patch) })
	if err != nil {
		return nil, err
	}
	if string(patch) == "{}" {
		if answer == nil {
			return nil, apierrors.NewMethodNotSupported(corev1.Resource("events"), "read")
		}
		event = answer.DeepCopy()
	}
	return f.remember(key, event, answer), nil
}

// lastGiven returns a copy of the Event as the foreign sink last took it, or
// what little is known of it.
func (f *foreignSink) lastGiven(key types.NamespacedName) *corev1.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if event, ok := f.stored.Get(key); ok {
		return event.DeepCopy()
	}
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

// remember keeps the Event that the foreign sink took, with what the answer
// adds: who stores it decides on its name, UID and version.
func (f *foreignSink) remember(key types.NamespacedName, event, answer *corev1.Event) *corev1.Event {
	if answer != nil {
		if answer.Name != "" {
			event.Name = answer.Name
		}
		event.UID = answer.UID
		event.ResourceVersion = answer.ResourceVersion
		event.CreationTimestamp = answer.CreationTimestamp
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored.Add(key, event)
	return event
}

// errSinkEnded is the answer of a call that ends its goroutine, as runtime.Goexit
// does, and a test's FailNow in a fake. Whether it took effect nobody can tell.
var errSinkEnded = errors.New("the sink ended its goroutine")

type foreignAnswer struct {
	event *corev1.Event
	err   error
}

// call waits for the foreign sink until the context ends.
func (f *foreignSink) call(ctx context.Context, key types.NamespacedName, do func() (*corev1.Event, error)) (*corev1.Event, error) {
	returned, err := f.begin(ctx, key)
	if err != nil {
		return nil, err
	}
	answers := make(chan foreignAnswer, 1)
	go func() {
		answer := foreignAnswer{err: errSinkEnded}
		defer func() {
			f.end(key, returned)
			answers <- answer
		}()
		answer = guarded(do)
	}()
	select {
	case answer := <-answers:
		return answer.event, answer.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// begin waits until no other call for the Event runs and there is a free slot.
// If there is none in time, it says so as an apiserver would.
func (f *foreignSink) begin(ctx context.Context, key types.NamespacedName) (returned chan struct{}, err error) {
	busy := func() error { return apierrors.NewTooManyRequests("earlier calls of the sink have not returned", 0) }
	select {
	case f.slots <- struct{}{}:
	case <-ctx.Done():
		return nil, busy()
	}
	for {
		f.mu.Lock()
		earlier, runs := f.running[key]
		if !runs {
			returned = make(chan struct{})
			f.running[key] = returned
			f.mu.Unlock()
			return returned, nil
		}
		f.mu.Unlock()
		select {
		case <-earlier:
		case <-ctx.Done():
			<-f.slots
			return nil, busy()
		}
	}
}

// end gives back what begin took.
func (f *foreignSink) end(key types.NamespacedName, returned chan struct{}) {
	f.mu.Lock()
	delete(f.running, key)
	f.mu.Unlock()
	close(returned)
	<-f.slots
}

// guarded makes an error of a panic. Whether the call took effect is then as
// unknown as after a broken connection.
func guarded(do func() (*corev1.Event, error)) (answer foreignAnswer) {
	defer func() {
		if recover() != nil {
			answer = foreignAnswer{err: fmt.Errorf("the sink panicked")}
		}
	}()
	event, err := do()
	return foreignAnswer{event, err}
}
