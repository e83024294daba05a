package minheap

import (
	"math/rand/v2"
	"testing"
)

type number struct {
	Place
	n int
}

func (a *number) Before(b *number) bool { return a.n < b.n }

func TestTheFirstIsTheLeast(t *testing.T) {
	var h Heap[*number]
	if h.First() != nil {
		t.Error("an empty heap has an element")
	}
	all := make([]*number, 50)
	for i := range all {
		all[i] = &number{}
	}
	in := make(map[*number]bool)
	for range 10_000 {
		e := all[rand.IntN(len(all))]
		if rand.IntN(3) == 0 {
			h.Remove(e)
			delete(in, e)
		} else {
			e.n = rand.IntN(1000)
			h.Fix(e)
			in[e] = true
		}
		least := 1000
		for e := range in {
			least = min(least, e.n)
		}
		if h.Len() != len(in) || len(in) > 0 && h.First().n != least {
			t.Fatalf("%d elements with %v first, want %d with %d", h.Len(), h.First(), len(in), least)
		}
	}
}
