package faultproxy

import (
	"context"
	"fmt"
	"testing"

	"github.com/eventd/eventd/test/await"
)

func TestWritesAboveTheCapacityAreRefused(t *testing.T) {
	backend, p, c := setUp(t)
	p.SetCapacity(2)
	release := backend.holdWrites(t)
	a, b := c.start(t.Context(), "ns", "a"), c.start(t.Context(), "ns", "b")
	backend.waitArrived(t, 2)
	g := c.create(t.Context(), "ns", "c")
	if g.code != 429 || g.header.Get("Retry-After") != "1" {
		t.Errorf("the third got %+v", g)
	}
	release()
	wantCreated(t, receive(t, a))
	wantCreated(t, receive(t, b))
	wantCreated(t, c.create(t.Context(), "ns", "c"))
	r := p.Record()
	over := r.Count(func(e Entry) bool { return e.Fault == OverCapacity })
	if over != 1 || r[2].Fault != OverCapacity || r[2].Number != 0 || r[3].Number != 1 {
		t.Errorf("recorded is %+v", r)
	}
	backend.wantWrites(t, 3)
}

// A hanging write holds a slot, as it does in an apiserver.
func TestHangingWriteHoldsItsPlace(t *testing.T) {
	_, p, c := setUp(t, Rule{Match: Match{NamePrefix: "stuck"}, Probability: 1, Fault: BeforeWrite(Hang)})
	p.SetCapacity(1)
	ctx, giveUp := context.WithCancel(t.Context())
	stuck := c.start(ctx, "ns", "stuck")
	await.Until(t, "it hangs", func() bool { r := p.Record(); return len(r) == 1 && r[0].Fault != "" })
	if g := c.create(t.Context(), "ns", "a"); g.code != 429 {
		t.Errorf("the client got %+v", g)
	}
	giveUp()
	receive(t, stuck)
	waitQuiet(t, p)
	wantCreated(t, c.create(t.Context(), "ns", "a"))
}

// A client that makes the next request as soon as it has its answer finds its slot
// free.
func TestPlaceIsFreeBeforeTheAnswerIsThere(t *testing.T) {
	for name, rule := range map[string]Rule{
		"passing": {}, "answered by the proxy": always(AfterWrite(Status(500))),
	} {
		t.Run(name, func(t *testing.T) {
			_, p, c := setUp(t, rule)
			p.SetCapacity(1)
			for i := range 200 {
				if g := c.create(t.Context(), "ns", fmt.Sprint(i)); g.code == 429 || g.err != nil {
					t.Fatalf("request %d got %+v", i, g)
				}
				if r := p.Record(); !r[i].Ended {
					t.Fatalf("entry %d is %+v", i, r[i])
				}
			}
		})
	}
}

func TestCapacityCanChangeAtAnyTime(t *testing.T) {
	backend, p, c := setUp(t)
	p.SetCapacity(1)
	release := backend.holdWrites(t)
	var answers []<-chan got
	start := func() {
		answers = append(answers, c.start(t.Context(), "ns", fmt.Sprint(len(answers))))
		backend.waitArrived(t, 1)
	}
	wantRefused := func() {
		t.Helper()
		if g := c.create(t.Context(), "ns", "more"); g.code != 429 {
			t.Errorf("the client got %+v", g)
		}
	}
	start()
	wantRefused()
	p.SetCapacity(2)
	start()
	wantRefused()
	p.SetCapacity(0)
	start()
	p.SetCapacity(1) // less than there are
	wantRefused()
	release()
	for _, a := range answers {
		wantCreated(t, receive(t, a))
	}
	wantCreated(t, c.create(t.Context(), "ns", "more"))
}
