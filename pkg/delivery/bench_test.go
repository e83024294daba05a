package delivery

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/observer"
	"github.com/eventd/eventd/pkg/receiver"
)

// quiet returns a context that logs nothing.
func quiet(t *testing.T) context.Context { return klog.NewContext(t.Context(), logr.Discard()) }

// bench runs one Delivery without faults but those of a test.
type bench struct {
	*Delivery
	t       *testing.T
	history *history
	store   *memoryConfigMap
	// client may have faults, under the mutex.
	client *configMapClient
	// sends answers the attempts of receivers. Without one, batches are accepted.
	sends map[string]func(ctx context.Context, batch []receiver.Record) (int, error)
	// filter filters Events, by the route "filter".
	filter func(receiver string, e *corev1.Event) bool
	// throttle is that of the route "all", which delivers; nil without one.
	throttle Throttle
	// routes are those of the next configuration.
	routes []v1alpha1.Route

	mu      sync.Mutex
	got     map[string][]string // IDs, by receiver
	opened  map[string]int
	closed  map[string]int
	readers []*memoryReader
	sources []observer.Start
	// faults of what the process is made of
	source func(*memorySource)
	open   func(r v1alpha1.Receiver) error

	cancel context.CancelCauseFunc
	done   chan struct{}
}

// set changes faults while the Delivery runs.
func (b *bench) set(change func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	change()
}

func newBench(t *testing.T, change ...func(*Options)) *bench {
	t.Helper()
	b := &bench{
		t: t, history: newHistory(), store: &memoryConfigMap{begun: make(map[string]entry)},
		sends: make(map[string]func(context.Context, []receiver.Record) (int, error)),
		got:   make(map[string][]string), opened: make(map[string]int), closed: make(map[string]int),
	}
	b.client = &configMapClient{of: b.store, mu: &b.mu}
	b.renew(change...)
	return b
}

// renew makes the Delivery of another process.
func (b *bench) renew(change ...func(*Options)) {
	b.t.Helper()
	o := DefaultOptions()
	o.Cluster, o.Client = "test", b.client
	o.NewSource = func(start observer.Start) (Source, error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		s := &memorySource{history: b.history, limit: 1 << 20, made: func(r *memoryReader) {
			b.set(func() { b.readers = append(b.readers, r) })
		}}
		b.sources = append(b.sources, start)
		if b.source != nil {
			b.source(s)
		}
		return s, nil
	}
	o.NewReceiver = func(r v1alpha1.Receiver) (receiver.Receiver, error) {
		if b.open != nil {
			if err := b.open(r); err != nil {
				return nil, err
			}
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.opened[r.Name]++
		return benchReceiver{b, r.Name}, nil
	}
	for _, c := range change {
		c(&o)
	}
	var err error
	if b.Delivery, err = New(o); err != nil {
		b.t.Fatal(err)
	}
}

// apply applies a configuration with these receivers.
func (b *bench) apply(receivers ...v1alpha1.Receiver) {
	b.Apply(&v1alpha1.EventdConfiguration{Receivers: receivers, Routes: append([]v1alpha1.Route{{Name: "filter"}}, b.routes...)},
		func(receiver string) View { return benchView{b, receiver} })
}

// begin begins a term, and end ends it and returns how long that took.
func (b *bench) begin() {
	ctx, cancel := context.WithCancelCause(quiet(b.t))
	b.cancel, b.done = cancel, make(chan struct{})
	go func() {
		defer close(b.done)
		if err := b.Run(ctx); err != nil {
			b.t.Error(err)
		}
	}()
	synctest.Wait()
}

func (b *bench) end(cause error) time.Duration {
	began := time.Now()
	b.cancel(cause)
	<-b.done
	return time.Since(began)
}

// write stores n versions of one Event, and lets them be delivered.
func (b *bench) write(uid string, n int) (ids []string) {
	for _, version := range b.history.writeVersions(uid, n) {
		ids = append(ids, idOf(version))
	}
	time.Sleep(2 * sendInterval)
	synctest.Wait()
	return ids
}

func (b *bench) delivered(receiver string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.got[receiver]...)
}

// status returns the status of a receiver, and checks its accounts.
func (b *bench) status(receiver string) Status {
	b.t.Helper()
	synctest.Wait()
	for _, s := range b.Snapshot() {
		if s.Name == receiver {
			if s.Observed != s.Settled()+s.Pending {
				b.t.Errorf("the accounts do not add up: %+v", s)
			}
			return s
		}
	}
	b.t.Fatalf("there is no %s", receiver)
	return Status{}
}

type benchView struct {
	*bench
	receiver string
}

func (v benchView) Deliver(e *corev1.Event) (bool, string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.filter != nil && v.filter(v.receiver, e) {
		return false, "filter"
	}
	return true, "all"
}

func (v benchView) Throttle(route string) Throttle {
	v.mu.Lock()
	defer v.mu.Unlock()
	if route != "all" {
		return nil
	}
	return v.throttle
}

func (v benchView) Redact(e *corev1.Event) *corev1.Event { return e }

type benchReceiver struct {
	*bench
	name string
}

func (r benchReceiver) Send(ctx context.Context, batch []receiver.Record) (rejected int, err error) {
	r.mu.Lock()
	send := r.sends[r.name]
	r.mu.Unlock()
	if send != nil {
		if rejected, err = send(ctx, batch); err != nil {
			return rejected, err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range batch {
		id := record.ID
		if record.Summarized > 0 {
			id = fmt.Sprintf("%d to %s", record.Summarized, id)
		}
		r.got[r.name] = append(r.got[r.name], id)
	}
	return rejected, nil
}

func (r benchReceiver) Close() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed[r.name]++
	return nil
}

func named(name string) v1alpha1.Receiver { return v1alpha1.Receiver{Name: name} }
