package intake_test

import (
	"context"
	"encoding/json"
	"errors"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/strategicpatch"

	"github.com/eventd/eventd/pkg/intake"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/pipeline"
)

// oneEvent is an apiserver that keeps one Event, and lets a test answer the first
// create.
type oneEvent struct {
	first chan chan func() error // has what answers the first create

	mu      sync.Mutex
	asked   bool
	version int
	event   *corev1.Event
}

func (o *oneEvent) Create(_ context.Context, _ occurrence.API, event *corev1.Event) (*corev1.Event, error) {
	o.mu.Lock()
	first := !o.asked
	o.asked = true
	o.mu.Unlock()
	if first {
		way := make(chan func() error)
		o.first <- way
		if err := (<-way)(); err != nil {
			return nil, err
		}
	}
	return o.put(event)
}

func (o *oneEvent) put(event *corev1.Event) (*corev1.Event, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.event != nil && event.ResourceVersion != o.event.ResourceVersion {
		return nil, apierrors.NewAlreadyExists(schema.GroupResource{Resource: "events"}, event.Name)
	}
	o.version++
	o.event = event.DeepCopy()
	o.event.UID, o.event.ResourceVersion = "uid", strconv.Itoa(o.version)
	return o.event.DeepCopy(), nil
}

func (o *oneEvent) Patch(_ context.Context, _ occurrence.API, _, name string, patch []byte) (*corev1.Event, error) {
	o.mu.Lock()
	stored := o.event.DeepCopy()
	o.mu.Unlock()
	if stored == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "events"}, name)
	}
	before, err := json.Marshal(stored)
	if err != nil {
		return nil, err
	}
	after, err := strategicpatch.StrategicMergePatch(before, patch, corev1.Event{})
	if err != nil {
		return nil, err
	}
	changed := &corev1.Event{}
	if err := json.Unmarshal(after, changed); err != nil {
		return nil, err
	}
	return o.put(changed)
}

// The whole pipeline stores what the client has reached, whatever becomes of the
// POST that its raise overtakes.
func TestRaiseOfAWaitingPostIsStoredOnce(t *testing.T) {
	lost := apierrors.NewInternalError(errors.New("lost"))
	for name, end := range map[string]func(*oneEvent) error{
		"written":        func(*oneEvent) error { return nil },
		"lost":           func(*oneEvent) error { return lost },
		"refused for it": func(*oneEvent) error { return apierrors.NewBadRequest("refused") },
	} {
		t.Run(name, func(t *testing.T) {
			o := pipeline.DefaultOptions()
			o.Sink.RetryBaseDelay = 1
			p, err := pipeline.New(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			server := &oneEvent{first: make(chan chan func() error, 1)}
			if err := p.StartSink(server); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = p.Shutdown(t.Context()) }() // if it fails
			s := serve(t, written(), func(o *intake.Options, _ *intake.ServerOptions) { o.Record = p.Record })
			posted := background(func() answer { return s.Post(t, classic("a", 1)) })
			way := <-server.first
			before := p.Totals().Recorded
			raised := background(func() answer { return s.Patch(t, "a", `{"count":3}`) })
			until(t, "the raise is recorded", func() bool { return p.Totals().Recorded > before })
			way <- func() error { return end(server) }
			<-posted
			if a := <-raised; a.Code >= 300 {
				t.Errorf("answered %d: %s", a.Code, a.Body)
			}
			if err := p.Shutdown(t.Context()); err != nil { // writes what was to wait
				t.Error(err)
			}
			server.mu.Lock()
			defer server.mu.Unlock()
			if server.event == nil || server.event.Count != 3 {
				t.Errorf("stored: %v", server.event)
			}
		})
	}
}
