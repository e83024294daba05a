package model

// Sizes of a world. Every field of a state is one byte, so a state has no padding and can be
// hashed and compared as a whole.
const (
	maxProcesses   = 3
	maxSeries      = 2
	maxOccurrences = 4
	maxEntries     = 4
	maxSequence    = 5 // of one contributor, from 1
	maxClients     = 3
)

type (
	// sequence numbers the occurrences of a contributor, over all its series.
	sequence uint8
	// position counts the changes of what a contributor has pending: additions and settlements. It
	// is the same for all followers.
	position uint8
	// set is a set of occurrences, processes a set of processes.
	set       uint8
	processes uint8
	// observed is what a writer knows of the stored Event.
	observed uint8
	stage    uint8
)

const (
	nothing  observed = iota // no Event is known: the next write creates it
	outdated                 // an earlier version is known: the next write conflicts
	current                  // the stored version is known
	unread                   // the Event must be read before the next write
)

const (
	idle       stage = iota
	sent             // the apiserver has not handled the request yet
	succeeded        // it has, and the answer is under way
	conflicted       // 409
	notFound         // 404
)

// entry is a part of what a contributor has pending: the occurrences of a series from one sequence up
// to another. It is written and settled as a whole.
type entry struct {
	first, last sequence
	occurrences set
	// sealed: the entry is never merged with the next one.
	sealed bool
}

// entries are in order of sequence. Unused ones are zero, and at the end.
type entries [maxEntries]entry

// request is a write of one contributor's share.
type request struct {
	stage  stage
	create bool
	// current: the stored version is that on which the request is based or, once it has
	// succeeded, the one it has written.
	current  bool
	upTo     sequence
	contains set // the occurrences of the batch
	adds     set // those that it adds to the count
}

// counter is what one process has to write of one contributor to one Event. That of another
// contributor has what was adopted.
type counter struct {
	pending  entries
	carried  sequence // by a write of this process
	settled  sequence // up to which this process knows that all has settled
	observed observed
	request  request
}

// holding is what one process holds of what another one has pending, as of a position.
type holding struct {
	at      position
	upTo    sequence // what was recorded after it is not included
	pending [maxSeries]entries
}

// stream leads from a contributor to a follower.
type stream struct {
	open     bool
	sentAt   position // of the last batch
	sent     sequence
	received bool // a batch since the stream was opened
	ackedAt  position
	acked    sequence
	inFlight bool
	batch    holding  // what the follower holds once it has the batch
	after    sequence // the batch contains additions after this one only
}

type process struct {
	alive, dead bool     // neither: not started yet
	last        sequence // given to an occurrence
	everSent    sequence // to any follower
	at          position
	own         [maxSequence + 1]set // ghost: what was recorded under a sequence
	series      [maxSequence + 1]uint8
	streams     [maxProcesses]stream  // to followers
	held        [maxProcesses]holding // of contributors
	// counters are by contributor. adoptedAt is the position of the holding that was
	// adopted of one.
	counters  [maxProcesses][maxSeries]counter
	adoptedAt [maxProcesses]position
	// counted are occurrences that this process has seen to be counted; told are those of which
	// it knows from a contributor that they are no longer pending.
	counted set
	told    [maxProcesses]set
}

// stored is an Event in the apiserver.
type stored struct {
	exists bool
	shares [maxProcesses]sequence // 0: not in the list
	full   bool                   // the list of contributors has no free place
	pushed processes              // contributors that others have pushed out of the list
	totals [maxClients]uint8      // of clients
	number uint8                  // the count
	count  set                    // ghost: the occurrences that are in the count
	forgot set                    // ghost: counted, but the client has been pushed out
}

// late is a request that the sender no longer waits for and that may still arrive.
type late struct {
	request     request
	contributor uint8
	series      uint8
}

// budget bounds what may go wrong.
type budget struct {
	crashes, lostRequests, lostAnswers, disconnects, moves, expiries, others, names, retries, starts, merges, refusals uint8
}

type state struct {
	processes [maxProcesses]process
	events    [maxSeries]stored
	late      late
	leader    uint8 // the holder of the Lease
	left      budget
	posted    uint8 // occurrences 0 to posted-1 have been posted
	// ghosts
	confirmed set // answered 202
	answered  set // answered 201
	refused   set // answered 429, and recorded nowhere else
	ever      set // counted in an Event, maybe one that has expired
	excused   set // lost as the protocol says it may be
	safe      [maxOccurrences]processes
}

func (s set) has(i uint8) bool       { return s&(1<<i) != 0 }
func (p processes) has(i uint8) bool { return p&(1<<i) != 0 }

func (e *entries) len() int {
	n := 0
	for n < maxEntries && e[n].last > 0 {
		n++
	}
	return n
}

func (e *entries) empty() bool { return e[0].last == 0 }

// all returns the occurrences of all entries.
func (e *entries) all() (out set) {
	for i := range e {
		out |= e[i].occurrences
	}
	return out
}

// remove removes the entries for which a condition holds.
func (e *entries) remove(from func(*entry) bool) (removed set) {
	var kept entries
	n := 0
	for i := range e.len() {
		if from(&e[i]) {
			removed |= e[i].occurrences
			continue
		}
		kept[n] = e[i]
		n++
	}
	*e = kept
	return removed
}

func (h *holding) all() (out set) {
	for i := range h.pending {
		out |= h.pending[i].all()
	}
	return out
}
