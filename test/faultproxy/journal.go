package faultproxy

import (
	"context"
	"sync"
)

// journal is the Record as it is written.
type journal struct {
	mu      sync.Mutex
	entries []*entry
	open    int             // of the entries, those that have not ended
	waiting []chan struct{} // closed when open is 0
}

// entry is an Entry that has not ended.
type entry struct {
	journal *journal
	value   Entry
	parts   int // what may still happen to it: its request, its late write
}

func (j *journal) begin(r Request) *entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e := &entry{journal: j, value: Entry{Request: r}, parts: 1}
	j.entries = append(j.entries, e)
	j.open++
	return e
}

// set changes an entry.
func (e *entry) set(change func(*Entry)) {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	change(&e.value)
}

// addPart is called while another part has not ended.
func (e *entry) addPart() {
	e.journal.mu.Lock()
	defer e.journal.mu.Unlock()
	e.parts++
}

// endPart ends one part, and with the last one the entry.
func (e *entry) endPart() {
	j := e.journal
	j.mu.Lock()
	defer j.mu.Unlock()
	if e.parts--; e.parts > 0 {
		return
	}
	e.value.Ended = true
	if j.open--; j.open == 0 {
		for _, w := range j.waiting {
			close(w)
		}
		j.waiting = nil
	}
}

func (j *journal) snapshot() Record {
	j.mu.Lock()
	defer j.mu.Unlock()
	r := make(Record, len(j.entries))
	for i, e := range j.entries {
		r[i] = e.value
	}
	return r
}

func (j *journal) quiet(ctx context.Context) error {
	j.mu.Lock()
	if j.open == 0 {
		j.mu.Unlock()
		return nil
	}
	quiet := make(chan struct{})
	j.waiting = append(j.waiting, quiet)
	j.mu.Unlock()
	select {
	case <-quiet:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
