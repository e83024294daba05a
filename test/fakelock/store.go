// Package fakelock is a leader election lock in memory, for tests in a synctest
// bubble. A Store is the server: it refuses a write that does not name the version
// last written. A Lock is one process's connection to it, whose calls a test
// intercepts.
package fakelock

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

var resource = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

// Store contains records by name. It is safe for concurrent use.
type Store struct {
	mu       sync.Mutex
	objects  map[string]*Object
	version  int
	watchers map[int]func()
	watches  int
}

// Object is a record, what its holder announces, and a version that every write
// changes.
type Object struct {
	Record    resourcelock.LeaderElectionRecord
	Announced any
	version   int
}

// NewStore returns an empty Store.
func NewStore() *Store { return &Store{objects: map[string]*Object{}, watchers: map[int]func(){}} }

// Get returns an object, or NotFound.
func (s *Store) Get(name string) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[name]
	if o == nil {
		return Object{}, apierrors.NewNotFound(resource, name)
	}
	return *o, nil
}

// Put updates the object that o was read as, or creates it if o was not read.
func (s *Store) Put(name string, o Object) (Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch now := s.objects[name]; {
	case now == nil && o.version != 0:
		return Object{}, apierrors.NewNotFound(resource, name)
	case now != nil && o.version == 0:
		return Object{}, apierrors.NewAlreadyExists(resource, name)
	case now != nil && now.version != o.version:
		return Object{}, apierrors.NewConflict(resource, name, fmt.Errorf("version %d is not %d", o.version, now.version))
	}
	return s.store(name, o), nil
}

// Set stores a record by force, and leaves what its holder announces.
func (s *Store) Set(name string, r resourcelock.LeaderElectionRecord) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var o Object
	if now := s.objects[name]; now != nil {
		o = *now
	}
	o.Record = r
	s.store(name, o)
}

func (s *Store) store(name string, o Object) Object {
	s.version++
	o.version = s.version
	s.objects[name] = &o
	s.notify()
	return o
}

// Delete deletes an object.
func (s *Store) Delete(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.objects, name)
	s.notify()
}

func (s *Store) notify() {
	for _, changed := range s.watchers {
		changed()
	}
}

// Holder returns the holder in a record, or "".
func (s *Store) Holder(name string) string {
	o, _ := s.Get(name)
	return o.Record.HolderIdentity
}

// Watch calls changed at once and after each change of any object, until ctx ends.
func (s *Store) Watch(ctx context.Context, changed func()) error {
	s.mu.Lock()
	s.watches++
	id := s.watches
	s.watchers[id] = changed
	s.mu.Unlock()
	changed()
	<-ctx.Done()
	s.mu.Lock()
	delete(s.watchers, id)
	s.mu.Unlock()
	return ctx.Err()
}
