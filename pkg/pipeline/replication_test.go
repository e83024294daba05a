package pipeline

import (
	"context"
	"errors"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/kubernetes/scheme"

	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink"
)

// What is deferred when one pipeline ends is written by another one, which has followed it.
func TestPipelineHandsOverToAFollower(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := newMemoryServer(0, faults{})
		start := func() (drainable, *sink.Holdings) {
			o := DefaultOptions()
			o.Correlator.Heartbeat = correlator.MaxHeartbeat
			var err error
			if o.Sink.Holdings, err = sink.NewHoldings(sink.HoldingsOptions{MaxBytes: 1 << 20}); err != nil {
				t.Fatal(err)
			}
			return startPipeline(t, o, server), o.Sink.Holdings
		}
		first, _ := start()
		second, held := start()
		here, there := net.Pipe()
		go first.Serve(t.Context(), there)
		go held.Follow(t.Context(), here)
		r := first.NewRecorder(scheme.Scheme, source)
		for range 3 {
			recordPods(r, 1)
			synctest.Wait()
		}
		if err := first.AwaitFollower(t.Context()); err != nil {
			t.Error(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := first.Shutdown(ended); err != nil {
			t.Error(err)
		}
		second.SetLeading(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		a, b := first.Totals(), second.Totals()
		if a.Written() != 1 || a.Outcomes[occurrence.HandedOver] != 2 || b.Adopted != 2 || b.Written() != 2 || sumOf(server.all()) != 3 {
			t.Errorf("settled %+v and %+v, stored %v", a, b, server.all())
		}
		drain(t, second)
	})
}

func TestPipelineWithoutASinkServesNobody(t *testing.T) {
	p, err := New(t.Context(), DefaultOptions())
	if err != nil {
		t.Fatal(err)
	}
	here, _ := net.Pipe()
	if err := p.Serve(t.Context(), here); !errors.Is(err, errNotStarted) {
		t.Errorf("got %v", err)
	}
	p.SetLeading(true)
	if err := p.AwaitFollower(t.Context()); err != nil {
		t.Error(err)
	}
}
