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
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// sinkCalls has the common methods of client-go's two kinds of EventSink. The callee owns
// the event.
type sinkCalls interface {
	create(ctx context.Context, event *corev1.Event) (*corev1.Event, error)
	patch(ctx context.Context, event *corev1.Event, patch []byte) (*corev1.Event, error)
}

// customSink is the sink.Client of an EventSink that is not client-go's. The EventSink
// expects the whole Event with each patch, so customSink keeps the Events that it accepted.
//
// If the responses have a resourceVersion, the EventSink forwards to an apiserver, or works
// like one: it refuses to create an Event that exists, and can return one. Otherwise it is
// unknown whether Create replaces an Event. So each new Event then gets an unused name, and
// an evicted one continues under another name: nothing that was counted is replaced. A
// response without an error counts as written.
type customSink struct {
	calls  sinkCalls
	traits *traits

	mu sync.Mutex
	// Both have the name of the series as key, and are nil after release.
	stored *simplelru.LRU[types.NamespacedName, *corev1.Event] // last accepted
	// tried has the Events whose last call has not succeeded.
	tried *simplelru.LRU[types.NamespacedName, try]
}

var _ sink.Client = &customSink{}

// try is a call that may have taken effect. The next call has the same name, so its count
// replaces that of this one.
type try struct {
	// event is the Event of the first attempt to create it, or the one to patch.
	event   *corev1.Event
	isPatch bool
	// differs: a later attempt to create it had another content, such as a higher count.
	differs bool
}

// traits has what is known of an EventSink, also after its stop.
type traits struct {
	// Whether a response had a resourceVersion, and whether one had none.
	versions, plain atomic.Bool
}

// versionless reports whether no response had a resourceVersion, so that stored Events
// cannot be read.
func (t *traits) versionless() bool { return t.plain.Load() && !t.versions.Load() }

func (t *traits) observe(answer *corev1.Event) {
	if answer != nil && answer.ResourceVersion != "" {
		t.versions.Store(true)
	} else {
		t.plain.Store(true)
	}
}

// knownSinks is the size of a broadcaster's traitsCache.
const knownSinks = 16

// traitsCache has the traits of EventSinks. It is safe for use by many goroutines.
type traitsCache struct {
	mu    sync.Mutex
	known *simplelru.LRU[any, *traits]
}

func newTraitsCache() *traitsCache {
	known, err := simplelru.NewLRU[any, *traits](knownSinks, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return &traitsCache{known: known}
}

func (c *traitsCache) of(eventSink any) *traits {
	if !reflect.ValueOf(eventSink).Comparable() {
		return &traits{}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	known, ok := c.known.Get(eventSink)
	if !ok {
		known = &traits{}
		c.known.Add(eventSink, known)
	}
	return known
}

func newCustomSink(calls sinkCalls, h *traits, o sink.Options) (*customSink, error) {
	if err := o.Validate(); err != nil {
		return nil, fmt.Errorf("sink options: %w", err)
	}
	stored, err := simplelru.NewLRU[types.NamespacedName, *corev1.Event](o.MaxIdleSeries, nil)
	if err != nil {
		return nil, err
	}
	tried, err := simplelru.NewLRU[types.NamespacedName, try](o.MaxPendingSeries, nil)
	return &customSink{calls: calls, traits: h, stored: stored, tried: tried}, err
}

// release frees the Events when there are no more calls.
func (s *customSink) release() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stored, s.tried = nil, nil
}

// Create implements sink.Client.
func (s *customSink) Create(ctx context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	key := types.NamespacedName{Namespace: event.Namespace, Name: event.Name}
	event, before := s.attempt(key, event)
	if event == nil {
		return nil, apierrors.NewAlreadyExists(corev1.Resource("events"), key.Name)
	}
	given := event.DeepCopy()
	answer, err := guarded(func() (*corev1.Event, error) { return s.calls.create(ctx, given) })
	if apierrors.IsAlreadyExists(err) {
		s.undo(key, before)
	}
	if err != nil {
		return nil, err
	}
	return s.accept(key, event, answer), nil
}

// attempt returns the Event to create, nil if it was accepted before and can only be
// patched. It also returns what to undo if the attempt had no effect.
func (s *customSink) attempt(key types.NamespacedName, event *corev1.Event) (*corev1.Event, try) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored == nil {
		return nil, try{}
	}
	if last := s.accepted(key); last != nil && last.ResourceVersion == "" {
		return nil, try{}
	}
	event = event.DeepCopy()
	before, ok := s.tried.Get(key)
	if ok && !before.isPatch {
		event.Name = before.event.Name
		differs := before.differs || !equality.Semantic.DeepEqual(event, before.event)
		s.tried.Add(key, try{event: before.event, differs: differs})
		return event, before
	}
	if s.traits.versionless() {
		event.Name = unusedName(event.Name)
	}
	first := try{event: event.DeepCopy()}
	s.tried.Add(key, first)
	return event, first
}

// undo forgets an attempt that had no effect.
func (s *customSink) undo(key types.NamespacedName, before try) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried != nil {
		s.tried.Add(key, before)
	}
}

// unusedName returns a valid random name with the given name as prefix.
func unusedName(name string) string {
	const digits = 16
	var b [digits / 2]byte
	for i := range b {
		b[i] = byte(rand.Uint32())
	}
	name = name[:min(len(name), validation.DNS1123SubdomainMaxLength-1-digits)]
	return strings.TrimRight(name, ".-") + "." + hex.EncodeToString(b[:])
}

// Patch implements sink.Client. An empty patch returns the Event.
func (s *customSink) Patch(ctx context.Context, _ occurrence.API, namespace, name string, patch []byte) (*corev1.Event, error) {
	key := types.NamespacedName{Namespace: namespace, Name: name}
	if string(patch) == "{}" {
		return s.read(ctx, key, patch)
	}
	event := s.beginPatch(key)
	if event == nil {
		// There is no whole Event. After this error the sink creates it, or reads
		// it if it exists.
		return nil, apierrors.NewNotFound(corev1.Resource("events"), name)
	}
	if err := json.Unmarshal(patch, event); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	given := event.DeepCopy()
	answer, err := guarded(func() (*corev1.Event, error) { return s.calls.patch(ctx, given, patch) })
	if apierrors.IsNotFound(err) {
		s.drop(key)
	}
	if err != nil {
		return nil, err
	}
	return s.accept(key, event, answer), nil
}

// read returns an Event that exists. Only an EventSink that forwards to an apiserver can
// return it, as the response to an empty patch.
func (s *customSink) read(ctx context.Context, key types.NamespacedName, patch []byte) (*corev1.Event, error) {
	if event := s.lastAccepted(key); event != nil && event.ResourceVersion == "" {
		return event, nil
	}
	event, differs := s.firstTried(key)
	if s.traits.versionless() {
		// If the name is random, one of the attempts has taken effect.
		if event.Name == key.Name || differs {
			return s.disown(key, event), nil
		}
		return s.accept(key, event, nil), nil
	}
	given := event.DeepCopy()
	answer, err := guarded(func() (*corev1.Event, error) { return s.calls.patch(ctx, given, patch) })
	if err != nil {
		return nil, err
	}
	if s.traits.observe(answer); answer == nil {
		return s.disown(key, event), nil
	}
	return s.accept(key, answer.DeepCopy(), answer), nil
}

// disown drops an Event that may be that of another writer, or of one of several attempts
// without a response. It returns the Event without annotations: the sink then uses another
// name, and settles what was in doubt as uncertain.
func (s *customSink) disown(key types.NamespacedName, event *corev1.Event) *corev1.Event {
	s.drop(key)
	event.Annotations = nil
	return event
}

// lastAccepted returns a copy of the Event that the EventSink last accepted, nil if it was
// evicted.
func (s *customSink) lastAccepted(key types.NamespacedName) *corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.accepted(key).DeepCopy()
}

// accepted is lastAccepted without the copy. The mutex must be held.
func (s *customSink) accepted(key types.NamespacedName) *corev1.Event {
	if s.stored == nil {
		return nil
	}
	if event, ok := s.stored.Get(key); ok {
		return event
	}
	if tried, ok := s.tried.Get(key); ok && tried.isPatch {
		return tried.event
	}
	return nil
}

// beginPatch is lastAccepted for a patch. The Event is not evicted until the patch succeeds:
// if its answer is lost, only another patch of the same Event replaces its count.
func (s *customSink) beginPatch(key types.NamespacedName) *corev1.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	event := s.accepted(key)
	if event != nil {
		s.tried.Add(key, try{event: event, isPatch: true})
	}
	return event.DeepCopy()
}

// firstTried returns a copy of the Event of the first attempt to create it, or one with only
// the name, and whether later attempts differ.
func (s *customSink) firstTried(key types.NamespacedName) (event *corev1.Event, differs bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.tried != nil {
		if tried, ok := s.tried.Get(key); ok {
			return tried.event.DeepCopy(), tried.differs
		}
	}
	return &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: key.Namespace, Name: key.Name}}, false
}

// drop removes an Event.
func (s *customSink) drop(key types.NamespacedName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored != nil {
		s.stored.Remove(key)
		s.tried.Remove(key)
	}
}

// accept stores an Event that the EventSink accepted, with the name, UID and version of its
// response. It returns a copy.
func (s *customSink) accept(key types.NamespacedName, event, answer *corev1.Event) *corev1.Event {
	s.traits.observe(answer)
	if answer != nil {
		if answer.Name != "" {
			event.Name = answer.Name
		}
		event.UID = answer.UID
		event.ResourceVersion = answer.ResourceVersion
		event.CreationTimestamp = answer.CreationTimestamp
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stored != nil {
		s.stored.Add(key, event)
		s.tried.Remove(key)
	}
	return event.DeepCopy()
}

// guarded recovers a panic of a call. As after a broken connection, the call may have taken
// effect.
func guarded(do func() (*corev1.Event, error)) (event *corev1.Event, err error) {
	defer func() {
		if recover() != nil {
			event, err = nil, errors.New("the sink panicked")
		}
	}()
	return do()
}
