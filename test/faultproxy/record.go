package faultproxy

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
)

// Entry is one Event write.
type Entry struct {
	Request
	// Fault is the kind of the fault that struck it (Fault.String), OverCapacity,
	// or "".
	Fault string
	// Forwarded: it was sent to the backend.
	Forwarded bool
	// Status is the code of the backend's answer; 0 if it gave none.
	Status int
	// Err is why the backend gave no answer. If the client cancelled a write that no
	// fault had struck, its effect is unknown.
	Err error
	// Answer is the code that the client was sent; 0 if none, because of the
	// fault, or because the client gave up, or the proxy was paused.
	Answer int
	// Ended: its request and its late write have ended.
	Ended bool
}

// Succeeded reports whether the backend answered that the write succeeded.
func (e Entry) Succeeded() bool { return e.Status >= 200 && e.Status < 300 }

// Record has all Event writes in the order in which they came.
type Record []Entry

// Record returns a copy of all entries. An entry takes about 200 bytes and its name.
func (p *Proxy) Record() Record { return p.journal.snapshot() }

// Quiet waits until no Event write is in flight, late ones included.
func (p *Proxy) Quiet(ctx context.Context) error { return p.journal.quiet(ctx) }

// Count returns how many entries are as wanted.
func (r Record) Count(wanted func(Entry) bool) int {
	n := 0
	for _, e := range r {
		if wanted(e) {
			n++
		}
	}
	return n
}

// Tally is how often one kind of fault struck, and what became of those writes.
type Tally struct {
	Requests  int
	Empty     int // patches with the body {}
	Forwarded int
	Succeeded int
	NoAnswer  int // to the client
}

// Tallies adds up the entries by their Fault.
func (r Record) Tallies() map[string]Tally {
	tallies := map[string]Tally{}
	for _, e := range r {
		t := tallies[e.Fault]
		t.Requests++
		t.Empty += one(e.Empty)
		t.Forwarded += one(e.Forwarded)
		t.Succeeded += one(e.Succeeded())
		t.NoAnswer += one(e.Ended && e.Answer == 0)
		tallies[e.Fault] = t
	}
	return tallies
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// Table shows the tallies to people.
func (r Record) Table() string {
	var table bytes.Buffer
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\twrites\tempty\tforwarded\tsucceeded\tunanswered")
	tallies := r.Tallies()
	for _, fault := range slices.Sorted(maps.Keys(tallies)) {
		t := tallies[fault]
		if fault == "" {
			fault = "none"
		}
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\t%d\n", fault, t.Requests, t.Empty, t.Forwarded, t.Succeeded, t.NoAnswer)
	}
	w.Flush()
	return table.String()
}
