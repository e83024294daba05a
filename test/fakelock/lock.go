package fakelock

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Operation is a call to a Lock.
type Operation string

// The operations that an Interceptor sees.
const (
	Get    Operation = "get"
	Create Operation = "create"
	Update Operation = "update"
)

// Lock is a resourcelock.Interface for one record of a Store.
type Lock struct {
	store    *Store
	name     string
	identity string
	seen     Object // as last read or written

	mu        sync.Mutex
	intercept Interceptor
	announces any
	events    []string
	requests  map[Operation]int
}

var _ resourcelock.Interface = &Lock{}

// New returns a Lock for the record called name.
func New(s *Store, name, identity string) *Lock {
	return &Lock{store: s, name: name, identity: identity, requests: map[Operation]int{}}
}

// For returns a Lock of another process for the same record.
func (l *Lock) For(identity string) *Lock { return New(l.store, l.name, identity) }

// Intercept sets the Interceptor of all later calls. nil removes it.
func (l *Lock) Intercept(i Interceptor) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.intercept = i
}

// Announce sets what is stored with each later record that names this process.
func (l *Lock) Announce(what any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.announces = what
}

func (l *Lock) do(ctx context.Context, op Operation, send func() error) error {
	l.mu.Lock()
	l.requests[op]++
	intercept := l.intercept
	l.mu.Unlock()
	if intercept == nil {
		return send()
	}
	return intercept(ctx, op, send)
}

// Requests returns the number of calls by operation.
func (l *Lock) Requests() map[Operation]int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.requests)
}

// Events returns the arguments of RecordEvent.
func (l *Lock) Events() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.events)
}

// Holder returns the holder in the stored record.
func (l *Lock) Holder() string { return l.store.Holder(l.name) }

// Watch watches the Store.
func (l *Lock) Watch(ctx context.Context, changed func()) error { return l.store.Watch(ctx, changed) }

// Get implements resourcelock.Interface.
func (l *Lock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	var got Object
	err := l.do(ctx, Get, func() (err error) {
		got, err = l.store.Get(l.name)
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	l.seen = got
	raw, err := json.Marshal(got.Record)
	return &got.Record, fmt.Appendf(raw, "@%d", got.version), err
}

// Create implements resourcelock.Interface.
func (l *Lock) Create(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, Create, Object{Record: r})
}

// Update implements resourcelock.Interface.
func (l *Lock) Update(ctx context.Context, r resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, Update, Object{Record: r, version: l.seen.version})
}

func (l *Lock) write(ctx context.Context, op Operation, o Object) error {
	if o.Record.HolderIdentity == l.identity {
		l.mu.Lock()
		o.Announced = l.announces
		l.mu.Unlock()
	}
	var written Object
	err := l.do(ctx, op, func() (err error) {
		written, err = l.store.Put(l.name, o)
		return err
	})
	if err == nil {
		l.seen = written
	}
	return err
}

// RecordEvent implements resourcelock.Interface.
func (l *Lock) RecordEvent(event string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, event)
}

// Identity implements resourcelock.Interface.
func (l *Lock) Identity() string { return l.identity }

// Describe implements resourcelock.Interface.
func (l *Lock) Describe() string { return l.name }

// Announced returns what was stored with the record as last read or written.
func (l *Lock) Announced() any { return l.seen.Announced }
