package faultproxy

import (
	"context"
	"fmt"
	"testing"

	"github.com/eventd/eventd/test/await"
)

func isOver(e Entry) bool { return e.Fault == OverCapacity }

func TestWritesAboveTheCapacityAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		refusal    Answer
		code       int
		retryAfter string
	}{
		"as the apiserver does": {Answer{}, 429, "1"},
		"as the test wants":     {Status(503), 503, ""},
	} {
		t.Run(name, func(t *testing.T) {
			backend, p, c := setUp(t)
			p.SetCapacity(Capacity{AtOnce: 2, Refusal: test.refusal})
			release := backend.holdWrites(t)
			a, b := c.start(t.Context(), "ns", "a"), c.start(t.Context(), "ns", "b")
			backend.waitArrived(t, 2)
			g := c.create(t.Context(), "ns", "c")
			if g.code != test.code || g.header.Get("Retry-After") != test.retryAfter {
				t.Errorf("the third got %+v", g)
			}
			release()
			wantCreated(t, receive(t, a))
			wantCreated(t, receive(t, b))
			wantCreated(t, c.create(t.Context(), "ns", "c"))
			r := p.Record()
			if r.Count(isOver) != 1 || r[2].Fault != OverCapacity || r[2].Number != 0 || r[3].Number != 1 {
				t.Errorf("recorded is %+v", r)
			}
			backend.wantWrites(t, 3)
		})
	}
}

func TestWritesThatMayWaitAreServedInTheirOrder(t *testing.T) {
	backend, p, c := setUp(t)
	p.SetCapacity(Capacity{AtOnce: 1, Waiting: 3})
	release := backend.holdWrites(t)
	answers := []<-chan got{c.start(t.Context(), "ns", "0")}
	backend.waitArrived(t, 1)
	for i := 1; i <= 3; i++ {
		answers = append(answers, c.start(t.Context(), "ns", fmt.Sprint(i)))
		await.Until(t, "it waits", func() bool { return p.limiter.waiting() == i })
	}
	if g := c.create(t.Context(), "ns", "4"); g.code != 429 {
		t.Errorf("the one that may not wait got %+v", g)
	}
	backend.wantWrites(t, 1)
	release()
	for _, a := range answers {
		wantCreated(t, receive(t, a))
	}
	for i, w := range backend.seen() {
		if w.body != eventNamed(fmt.Sprint(i)) {
			t.Errorf("write %d is %s", i, w.body)
		}
	}
}

func (p *limiter) waiting() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue)
}

func TestGivingUpInTheQueueMakesRoom(t *testing.T) {
	backend, p, c := setUp(t)
	p.SetCapacity(Capacity{AtOnce: 1, Waiting: 1})
	release := backend.holdWrites(t)
	first := c.start(t.Context(), "ns", "first")
	backend.waitArrived(t, 1)
	ctx, giveUp := context.WithCancel(t.Context())
	impatient := c.start(ctx, "ns", "impatient")
	await.Until(t, "it waits", func() bool { return p.limiter.waiting() == 1 })
	giveUp()
	receive(t, impatient)
	await.Until(t, "it no longer waits", func() bool { return p.limiter.waiting() == 0 })
	next := c.start(t.Context(), "ns", "next")
	await.Until(t, "the next one waits", func() bool { return p.limiter.waiting() == 1 })
	release()
	wantCreated(t, receive(t, first))
	wantCreated(t, receive(t, next))
	backend.wantWrites(t, 2)
}

// A hanging write holds a slot, as it does in an apiserver.
func TestHangingWriteHoldsItsPlace(t *testing.T) {
	_, p, c := setUp(t, Rule{Match: Match{NamePrefix: "stuck"}, Probability: 1, Fault: BeforeWrite(Hang)})
	p.SetCapacity(Capacity{AtOnce: 1})
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
			p.SetCapacity(Capacity{AtOnce: 1})
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
	p.SetCapacity(Capacity{AtOnce: 1, Waiting: 10})
	release := backend.holdWrites(t)
	var answers []<-chan got
	for i := range 4 {
		answers = append(answers, c.start(t.Context(), "ns", fmt.Sprint(i)))
	}
	backend.waitArrived(t, 1)
	await.Until(t, "three wait", func() bool { return p.limiter.waiting() == 3 })
	p.SetCapacity(Capacity{AtOnce: 3, Waiting: 10})
	backend.waitArrived(t, 2)
	if n := p.limiter.waiting(); n != 1 {
		t.Errorf("%d wait, want 1", n)
	}
	p.SetCapacity(Capacity{})
	backend.waitArrived(t, 1)
	p.SetCapacity(Capacity{AtOnce: 1}) // less than there are
	if g := c.create(t.Context(), "ns", "more"); g.code != 429 {
		t.Errorf("the client got %+v", g)
	}
	release()
	for _, a := range answers {
		wantCreated(t, receive(t, a))
	}
	wantCreated(t, c.create(t.Context(), "ns", "more"))
}

func TestPlaceThatIsHandedToOneWhoLeavesIsNotLost(t *testing.T) {
	leaver, next := make(chan struct{}), make(chan struct{})
	p := limiter{capacity: Capacity{AtOnce: 1, Waiting: 2}, taken: 1, queue: []chan struct{}{leaver, next}}
	p.release() // hands it over
	p.leave(leaver)
	<-next
	p.release()
	if p.taken != 0 {
		t.Errorf("%d slots are taken", p.taken)
	}
}
