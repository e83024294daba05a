package fakeapiserver

import (
	"errors"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/watch"
)

const (
	// keptChanges is how many changes a watch may be behind when it begins, before it gets 410.
	keptChanges = 4096
	// bufferedChanges is how many changes a watch may be behind later, before it ends.
	bufferedChanges = 1024
)

// object is a stored object. It is never changed, only replaced.
type object interface {
	runtime.Object
	metav1.Object
}

// change is a change of an object: what a watch reports.
type change struct {
	kind    watch.EventType
	version int64
	object  object
}

// store has the objects of one resource. Every change has a version of its own.
type store struct {
	resource schema.GroupResource

	mu       sync.Mutex
	version  int64
	objects  map[types.NamespacedName]object
	changes  []change // the last ones
	watchers map[chan change]struct{}
}

func newStore(resource schema.GroupResource) *store {
	return &store{
		resource: resource, version: 1,
		objects: make(map[types.NamespacedName]object), watchers: make(map[chan change]struct{}),
	}
}

func (s *store) get(key types.NamespacedName) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if o := s.objects[key]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(s.resource, key.Name)
}

// create stores a new object, which is the store's from now on.
func (s *store) create(o object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	if s.objects[key] != nil {
		return apierrors.NewAlreadyExists(s.resource, key.Name)
	}
	o.SetUID(uuid.NewUUID())
	o.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	s.put(watch.Added, key, o)
	return nil
}

// update replaces an object by what edit returns, which is the store's from then on. If edit returns the
// object itself, nothing is written.
func (s *store) update(key types.NamespacedName, edit func(object) (object, error)) (object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.objects[key]
	if before == nil {
		return nil, apierrors.NewNotFound(s.resource, key.Name)
	}
	after, err := edit(before)
	if err != nil || after == before {
		return after, err
	}
	if after.GetResourceVersion() != before.GetResourceVersion() || after.GetUID() != before.GetUID() {
		return nil, apierrors.NewConflict(s.resource, key.Name, errors.New("the object has been modified"))
	}
	s.put(watch.Modified, key, after)
	return after, nil
}

// put must be called with the mutex.
func (s *store) put(kind watch.EventType, key types.NamespacedName, o object) {
	s.version++
	o.SetResourceVersion(strconv.FormatInt(s.version, 10))
	s.objects[key] = o
	c := change{kind, s.version, o}
	if len(s.changes) == 2*keptChanges {
		s.changes = append(s.changes[:0], s.changes[keptChanges:]...)
	}
	s.changes = append(s.changes, c)
	for w := range s.watchers {
		select {
		case w <- c:
		default: // it is too slow
			delete(s.watchers, w)
			close(w)
		}
	}
}

// list returns the objects of a namespace, of all if that is "", and their version.
func (s *store) list(namespace string) (objects []object, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, o := range s.objects {
		if namespace == "" || key.Namespace == namespace {
			objects = append(objects, o)
		}
	}
	return objects, strconv.FormatInt(s.version, 10)
}

// watch returns the changes after a version, and those that follow until stop, which must be called. The
// channel is closed if its reader is too slow. The version "" is the current one.
func (s *store) watch(after string) (past []change, next <-chan change, stop func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.version
	if after != "" && after != "0" {
		if from, err = strconv.ParseInt(after, 10, 64); err != nil {
			return nil, nil, nil, apierrors.NewBadRequest("invalid resourceVersion " + strconv.Quote(after))
		}
	}
	if oldest := s.version - int64(len(s.changes)); from < oldest {
		return nil, nil, nil, apierrors.NewResourceExpired("the resourceVersion is too old")
	}
	begin := slices.IndexFunc(s.changes, func(c change) bool { return c.version > from })
	if begin >= 0 {
		past = slices.Clone(s.changes[begin:])
	}
	w := make(chan change, bufferedChanges)
	s.watchers[w] = struct{}{}
	return past, w, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.watchers, w)
	}, nil
}
