package model

import "reflect"

// rules are those of docs/replication-protocol.md. The full protocol has all of them.
type rules struct {
	// Ordered: a batch that is lost ends the stream.
	Ordered bool
	// SendAll: all that a series has pending is sent, not only what is to be answered 202.
	SendAll bool
	// Snapshot: a stream begins with all that is pending, not only what is new.
	Snapshot bool
	// Replace: a snapshot replaces what was held, and is not added to it.
	Replace bool
	// Whole: what was held is kept until the snapshot is complete.
	Whole bool
	// Held: 202 is answered once a follower has acknowledged, however late it is.
	Held bool
	// Unsent: an occurrence is refused only if no follower and no write may have it.
	Unsent bool
	// Cut: entries are not merged if a follower with an open stream may hold the first one and
	// not the second one.
	Cut bool
	// Seal: the cuts of a stream that has ended stay, whatever is acknowledged over later ones.
	Seal bool
	// Mirror: a follower merges only what the contributor has merged.
	Mirror bool
	// Batch: whoever adopts writes all that it holds of the series at once.
	Batch bool
	// Sent: an entry that was sent settles by the stored share too, not only one that this
	// process has carried.
	Sent bool
	// PushedOut: an Event records who was pushed out of the list of contributors. A contributor
	// that is missing and not recorded has written nothing.
	PushedOut bool
	// Hand: each holder hands what it holds to the leader.
	Hand bool
	// Ended: it does so only when the stream has ended.
	Ended bool
	// Keep: it keeps it until all has settled.
	Keep bool
	// Newest: of several holdings, that with the highest position is adopted, and only those up
	// to this position are released.
	Newest bool
	// Empty: a holding with nothing pending is handed over as well, for its position.
	Empty bool
	// Marks: whoever adopts remembers up to where a contributor has settled, whatever is handed
	// over later.
	Marks bool
	// Own: a process does not adopt what it has pending itself.
	Own bool
	// Names: whoever adopts remembers which clients' occurrences it has seen to be counted.
	Names bool
	// Totals: a report includes all up to its total that this process has not seen to be
	// counted. What other processes knew of the client is not used.
	Totals bool
	Alternatives
}

// Alternatives are rules that were considered. None is part of the protocol.
type Alternatives struct {
	// Inside: an entry of which the stored share includes a part settles as uncertain.
	Inside bool
	// MissingUncertain: a contributor that is missing from a full list may have been pushed out,
	// recorded or not.
	MissingUncertain bool
	// HoldsMore: a cut is given up when the same process is known to hold more, though over a
	// later stream.
	HoldsMore bool
	// AskAgain: after a confirmation, 202 is answered only by a process that still leads.
	AskAgain bool
	// ReadFirst: whoever adopts reads the Event before it writes.
	ReadFirst bool
	// OrphansFirst: whoever adopts writes that before its own reports of the series.
	OrphansFirst bool
}

// protocol returns the full protocol.
func protocol() rules {
	var r rules
	for _, name := range ruleNames() {
		r.set(name, true)
	}
	return r
}

// ruleNames returns the names of all rules of the protocol.
func ruleNames() (out []string) {
	for f := range reflect.TypeFor[rules]().Fields() {
		if !f.Anonymous {
			out = append(out, f.Name)
		}
	}
	return out
}

func (r *rules) set(name string, to bool) { reflect.ValueOf(r).Elem().FieldByName(name).SetBool(to) }

// without returns the protocol without one rule.
func without(name string) rules {
	r := protocol()
	r.set(name, false)
	return r
}

// with returns the rules with one more.
func (r rules) with(name string) rules {
	r.set(name, true)
	return r
}
