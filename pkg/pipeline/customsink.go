package pipeline

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// foreignCalls are what the two kinds of client-go's EventSink have in common.
// The event belongs to the callee.
type foreignCalls interface {
	create(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error)
}

// customSink makes a client of an EventSink of which nothing is known. It wants
// the whole Event with a patch, so what it was given is remembered.
//
// One whose answers have a resourceVersion passes on to an apiserver, or to what
// works like one: it refuses to create what exists, and can be asked. Of any other
// it is not known whether a create replaces what is there. So it gets each new
// Event under a name that nobody has used, and what was forgotten begins anew
// under another one: nothing that was counted is replaced. Whether it stores
// anything at all is its own business; an answer without an error counts as
// written.
type customSink struct {
	calls  foreignCalls
	habits *habits

	mu sync.Mutex
	// Both are by the name that the Event has for its series, and nil after the end.
	stored *simplelru.LRU[types.NamespacedName, *corev1.Event] // what it took last
	// tried are Events whose last call was not answered with success.
	tried *simplelru.LRU[types.NamespacedName, try]
}

var _ sink.Client = &customSink{}

// try is a call that may or may not have taken effect. The next one has the same
// name, and its count takes the place of whatever this one has left.
type try struct {
	// event is the one to create, as it was in the first attempt, or the one that
	// was to be patched.
	event   *corev1.Event
	isPatch bool
}

// habits are what is known of an EventSink. They outlive its stop.
type habits struct {
	// versions: an answer had a resourceVersion; plain: one had none.
	versions, plain atomic.Bool
}

// arePlain tells whether nothing of what is stored can be known by asking.
func (h *habits) arePlain() bool { return h.plain.Load() && !h.versions.Load() }

func (h *habits) learn(answer *corev1.Event) {
	if answer != nil && answer.ResourceVersion != "" {
		h.versions.Store(true)
	} else {
		h.plain.Store(true)
	}
}

// knownSinks bounds the sinks whose habits a broadcaster remembers.
const knownSinks = 16

// habitsOf remembers the habits of EventSinks. It guards itself.
type habitsOf struct {
	mu    sync.Mutex
	known *simplelru.LRU[any, *habits]
}

func newHabitsOf() *habitsOf {
	known, err := simplelru.NewLRU[any, *habits](knownSinks, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &habitsOf{known: known}
}

func (h *habitsOf) of(eventSink any) *habits {
	if !reflect.ValueOf(eventSink).Comparable() {
		return &habits{}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	known, ok := h.known.Get(eventSink)
	if !ok {
		known = &habits{}
		h.known.Add(eventSink, known)
	}
	return known
}

func newCustomSink(calls foreignCalls, h *habits, o sink.Options) (*customSink, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("sink options: %w", err)
	}
	stored, err := simplelru.NewLRU[types.NamespacedName, *corev1.Event](o.MaxIdleSeries, nil)
	if err != nil {
		return nil, err
	}
	tried, err := simplelru.NewLRU[types.NamespacedName, try](o.MaxPendingSeries, nil)
	return &customSink{calls: calls, habits: h, stored: stored, tried: tried}, err
}

// forget lets go of what was remembered, when there are no more calls.
func (f *customSink) forget() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.stored, f.tried = nil, nil
}

// Create implements sink.Client.
func (f *customSink) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	key := types.NamespacedName{Namespace: event.Namespace, Name: event.Name}
	event = f.attempt(key, event)
	if event == nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), key.Name)
	}
	given := event.DeepCopy()
	answer, err := guarded(func() (*corev1.Event, error) { return f.calls.create(ctx, given) })
	if err != nil {
		return nil, err
	}
	return f.remember(key, event, answer), nil
}

// attempt returns the Event as it is to be created, nil if it was taken before and
// can only be patched.
func (f *customSink) attempt(key types.NamespacedName, event *corev1.Event) *corev1.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stored == nil {
		return nil
	}
	if taken := f.taken(key); taken != nil && taken.ResourceVersion == "" {
		return nil
	}
	event = event.DeepCopy()
	if first, ok := f.tried.Get(key); ok && !first.isPatch {
		event.Name = first.event.Name
		return event
	}
	if f.habits.arePlain() {
		event.Name = unusedName(event.Name)
	}
	f.tried.Add(key, try{event: event.DeepCopy()})
	return event
}

// unusedName returns a valid name that begins like the given one.
func unusedName(name string) string {
	const digits = 16
	var b [digits / 2]byte
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	name = name[:min(len(name), validation.DNS1123SubdomainMaxLength-1-digits)]
	return strings.TrimRight(name, ".-") + "." + hex.EncodeToString(b[:])
}

// Patch implements sink.Client. An empty patch asks for the Event.
func (f *customSink) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if string(patch) == "{}" {
		return f.read(ctx, key, patch)
	}
	event := f.lastTaken(key)
	if event == nil {
		// The Event cannot be given as a whole. The sink creates it again, or
		// reads it if it exists.
		return nil, apierrors.NewNotFound(corev1.Resource("events"), name)
	}
	if err := json.Unmarshal(patch, event); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	given := event.DeepCopy()
	f.pin(key)
	answer, err := guarded(func() (*corev1.Event, error) { return f.calls.patch(ctx, given, patch) })
	if apierrors.IsNotFound(err) {
		f.drop(key)
	}
	if err != nil {
		return nil, err
	}
	return f.remember(key, event, answer), nil
}

// read asks for an Event of which the sink was told that it exists. Only one that
// passes on to an apiserver can be asked: there an empty patch comes back with the
// Event.
func (f *customSink) read(ctx context.Context, key types.NamespacedName, patch []byte) (*corev1.Event, error) {
	if event := f.lastTaken(key); event != nil && event.ResourceVersion == "" {
		return event, nil
	}
	event := f.firstTried(key)
	if f.habits.arePlain() {
		if event.Name == key.Name {
			return f.leave(key, event), nil
		}
		// Nobody else has that name, so one of the attempts has taken effect.
		return f.remember(key, event, nil), nil
	}
	given := event.DeepCopy()
	answer, err := guarded(func() (*corev1.Event, error) { return f.calls.patch(ctx, given, patch) })
	if err != nil {
		return nil, err
	}
	if f.habits.learn(answer); answer == nil {
		return f.leave(key, event), nil
	}
	return f.remember(key, answer.DeepCopy(), answer), nil
}

// leave forgets an Event that may be somebody else's, or ours from an attempt
// without an answer. It returns the Event without our annotations: the sink then
// takes another name, and what was in doubt is uncertain.
func (f *customSink) leave(key types.NamespacedName, event *corev1.Event) *corev1.Event {
	f.drop(key)
	event.Annotations = nil
	return event
}

// lastTaken returns a copy of the Event as the custom sink last took it, nil if
// that is not remembered.
func (f *customSink) lastTaken(key types.NamespacedName) *corev1.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.taken(key).DeepCopy()
}

// taken is lastTaken with the mutex held, and not a copy.
func (f *customSink) taken(key types.NamespacedName) *corev1.Event {
	if f.stored == nil {
		return nil
	}
	if event, ok := f.stored.Get(key); ok {
		return event
	}
	if tried, ok := f.tried.Get(key); ok && tried.isPatch {
		return tried.event
	}
	return nil
}

// pin keeps an Event in mind while it is not known whether a patch takes effect.
func (f *customSink) pin(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if event := f.taken(key); event != nil {
		f.tried.Add(key, try{event: event, isPatch: true})
	}
}

// firstTried returns a copy of the Event as it was to be created, or what little
// is known of it.
func (f *customSink) firstTried(key types.NamespacedName) *corev1.Event {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tried != nil {
		if tried, ok := f.tried.Get(key); ok {
			return tried.event.DeepCopy()
		}
	}
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}
}

// drop forgets an Event.
func (f *customSink) drop(key types.NamespacedName) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.stored != nil {
		f.stored.Remove(key)
		f.tried.Remove(key)
	}
}

// remember keeps the Event that the custom sink took, with what the answer adds:
// who stores it decides on its name, UID and version. It returns a copy.
func (f *customSink) remember(key types.NamespacedName, event, answer *corev1.Event) *corev1.Event {
	f.habits.learn(answer)
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
	if f.stored != nil {
		f.stored.Add(key, event)
		f.tried.Remove(key)
	}
	return event.DeepCopy()
}

// guarded makes an error of a panic. Whether the call took effect is then as
// unknown as after a broken connection.
func guarded(do func() (*corev1.Event, error)) (event *corev1.Event, err error) {
	defer func() {
		if recover() != nil {
			event, err = nil, errors.New("the sink panicked")
		}
	}()
	return do()
}
