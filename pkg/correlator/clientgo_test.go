package correlator_test

import (
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	clocktesting "k8s.io/utils/clock/testing"
)

// clientGo is client-go's correlator with a store. Its results are applied as client-go's
// broadcaster does (recordToSink in tools/record), with an apiserver that never fails.
type clientGo struct {
	setup      setup
	clock      *clocktesting.FakePassiveClock
	correlator *record.EventCorrelator
	combined   bool // the last Event was combined

	objects map[string]*corev1.Event // by name
	places  map[string]place
	*outcome
}

func newClientGo(s setup) *clientGo {
	c := &clientGo{
		setup: s, clock: clocktesting.NewFakePassiveClock(beginning),
		objects: map[string]*corev1.Event{}, places: map[string]place{}, outcome: newOutcome(),
	}
	o := s.clientGo(c.clock)
	message := o.MessageFunc
	if message == nil {
		message = record.EventAggregatorByReasonMessageFunc
	}
	o.MessageFunc = func(e *corev1.Event) string {
		c.combined = true
		return message(e)
	}
	c.correlator = record.NewEventCorrelatorWithOptions(o)
	return c
}

// record does what recordToSink and recordEvent do.
func (c *clientGo) record(event *corev1.Event, now time.Time) error {
	c.clock.SetTime(now)
	c.combined = false
	result, err := c.correlator.EventCorrelate(event)
	if err != nil {
		return err
	}
	p := placeOf(c.setup.keys, event, c.combined)
	if result.Skip {
		c.refused[p.group]++
		return nil
	}
	stored, err := c.write(result, p)
	if err != nil {
		return err
	}
	c.writes[p]++
	c.subjectWrites[c.setup.keys.clientGoSubject(event)]++
	c.correlator.UpdateState(stored)
	return nil
}

func (c *clientGo) write(result *record.EventCorrelateResult, p place) (*corev1.Event, error) {
	event := result.Event
	if stored := c.objects[event.Name]; event.Count > 1 && stored != nil {
		before := stored.Count
		if err := json.Unmarshal(result.Patch, stored); err != nil {
			return nil, err
		}
		if c.places[event.Name] != p {
			return nil, fmt.Errorf("client-go counts %v on the Event of %v", p, c.places[event.Name])
		}
		c.counts[p] += int64(stored.Count - before)
		return stored.DeepCopy(), nil
	}
	if c.objects[event.Name] != nil {
		return nil, fmt.Errorf("client-go creates a second Event named %s", event.Name)
	}
	c.objects[event.Name], c.places[event.Name] = event.DeepCopy(), p
	c.counts[p] += int64(event.Count)
	return event.DeepCopy(), nil
}

// upstream runs a stream through client-go's correlator.
func upstream(s stream) (*clientGo, error) {
	c := newClientGo(s.setup)
	var failed error
	s.each(func(n int, event *corev1.Event, now time.Time) {
		if err := c.record(event, now); err != nil && failed == nil {
			failed = fmt.Errorf("item %d: %w", n, err)
		}
	})
	return c, failed
}
