package query

import (
	"bytes"
	"testing"
	"time"
)

func TestBatchesAreBounded(t *testing.T) {
	b := newBatches()
	one, other := selection{events: true}, selection{steps: true}
	text := bytes.Repeat([]byte("x"), 100_000)
	at := place{}
	for n := range uint64(200) {
		next := place{steps: n + 1}
		b.add(one, at, &batch{to: next, plain: text})
		at = next
	}
	if kept := len(b.order); kept != len(b.chains[one].from) || b.bytes > maxBatchBytes || kept < maxBatchBytes/len(text)/4 {
		t.Errorf("%d batches of %d bytes are kept, %d in order", len(b.chains[one].from), b.bytes, kept)
	}
	for n := range uint64(200) {
		b.add(other, place{steps: n}, &batch{to: place{steps: n + 1}, plain: text})
	}
	if len(b.chains) != 1 || b.bytes > maxBatchBytes {
		t.Errorf("%d selections are kept, and %d bytes", len(b.chains), b.bytes)
	}
}

func TestBatchOfTheFirstTailIsKept(t *testing.T) {
	b, of := newBatches(), selection{events: true}
	first := &batch{to: place{steps: 5}, complete: true}
	b.add(of, place{}, first)
	b.add(of, place{}, &batch{to: place{steps: 7}})
	next, newest, early := b.after(of, place{})
	if next != first || newest != first.to || !early {
		t.Errorf("%p follows, not %p; the newest ends at %v (%t)", next, first, newest, early)
	}
	b.chains[of].made = time.Now().Add(-batchAge)
	if next, _, early := b.after(of, newest); next != nil || early {
		t.Errorf("%v follows the newest one, early: %t", next, early)
	}
}
