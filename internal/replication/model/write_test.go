package model

import "math/bits"

// Writes to the apiserver: of what a process has pending itself, and of what it has adopted. The
// arguments of their actions are the process, the contributor and the series.

func (s *state) counter(a action) *counter { return &s.processes[a.a].counters[a.b][a.c] }

// canSend: a process writes what it has pending while it lives, and what it has adopted while it leads.
func (w *world) canSend(s *state, a action) bool {
	p, c := &s.processes[a.a], s.counter(a)
	if !p.alive || c.pending.empty() || c.request.stage != idle || c.observed == unread {
		return false
	}
	if a.a != a.b {
		return s.leads(a.a)
	}
	for other := range p.counters {
		if w.OrphansFirst && other != int(a.a) && s.leads(a.a) && !p.counters[other][a.c].pending.empty() {
			return false
		}
	}
	return true
}

// send plans a write of everything that is pending, and sends it.
func (w *world) send(s *state, a action) {
	p, c := &s.processes[a.a], s.counter(a)
	batch := c.pending
	if !w.Batch && a.a != a.b {
		batch = entries{batch[0]}
	}
	r := request{stage: sent, create: c.observed == nothing, current: c.observed == current}
	r.upTo, r.contains = batch[batch.len()-1].last, batch.all()
	var totals [maxClients]uint8
	if r.current {
		totals = s.events[a.c].totals
	}
	for e := range batch.len() {
		r.adds |= w.added(p, batch[e].occurrences, &totals)
	}
	if r.adds == 0 && c.observed != outdated { // it was counted before: nothing to write
		w.settle(s, a, r.upTo)
		return
	}
	if again := r.adds & p.counted; again != 0 {
		w.breaks("%s writes %b, of which it knows that it is counted", processName(a.a), again)
	}
	if again := r.adds & p.told[a.b] & w.anonymous(); again != 0 {
		w.breaks("%s writes %b, of which it was told that it settled", processName(a.a), again)
	}
	c.carried, c.request = max(c.carried, r.upTo), r
	if w.atOnce {
		w.arrive(s, a)
		w.answer(s, a)
	}
}

// added returns the occurrences of an entry that add to the count, and raises the totals of their
// clients.
func (w *world) added(p *process, of set, totals *[maxClients]uint8) (out set) {
	for i, o := range w.occurrences {
		i := uint8(i)
		switch {
		case !of.has(i):
		case o.client == 0:
			out |= 1 << i
		case w.Names && p.counted.has(i):
		case totals[o.client-1] < o.total:
			totals[o.client-1] = o.total
			out |= 1 << i
		}
	}
	return out
}

// arrive has the apiserver handle a request.
func (w *world) arrive(s *state, a action) {
	r := s.counter(a).request // others are no longer current after it
	r.stage = w.serve(s, &r, a.b, a.c)
	r.current = r.stage == succeeded
	s.counter(a).request = r
}

// serve applies a request to the stored Event, if it is based on the stored version.
func (w *world) serve(s *state, r *request, contributor, series uint8) stage {
	e := &s.events[series]
	switch {
	case r.create && e.exists, !r.create && e.exists && !r.current:
		return conflicted
	case !r.create && !e.exists:
		return notFound
	}
	w.checkWrite(s, r, contributor, series)
	e.exists = true
	e.shares[contributor] = max(e.shares[contributor], r.upTo)
	for i, o := range w.occurrences {
		if r.contains.has(uint8(i)) && o.client > 0 {
			e.totals[o.client-1] = max(e.totals[o.client-1], o.total)
		}
	}
	e.number += uint8(bits.OnesCount8(uint8(r.adds)))
	e.count |= r.adds
	s.ever |= r.adds
	s.changed(series)
	return succeeded
}

// changed has all that is known of an Event be outdated.
func (s *state) changed(series uint8) {
	for p := range s.processes {
		for c := range s.processes[p].counters {
			k := &s.processes[p].counters[c][series]
			if k.observed == current {
				k.observed = outdated
			}
			k.request.current = false
		}
	}
	if s.late.series == series {
		s.late.request.current = false
	}
}

// answer gives the process the answer to its request.
func (w *world) answer(s *state, a action) {
	c := s.counter(a)
	r := c.request
	c.request = request{}
	switch r.stage {
	case conflicted:
		c.observed = unread
	case notFound:
		c.observed = nothing
	case succeeded:
		c.observed = outdated
		if r.current {
			c.observed = current
		}
		s.processes[a.a].counted |= r.contains
		w.settle(s, a, r.upTo)
	}
	w.releaseOwn(s, a.a, a.b)
}

// loseAnswer has a process not get the answer.
func (w *world) loseAnswer(s *state, a action) {
	s.left.lostAnswers--
	s.counter(a).request = request{}
}

// loseRequest has a process no longer wait for a request that may arrive later.
func (w *world) loseRequest(s *state, a action) {
	s.left.lostRequests--
	c := s.counter(a)
	s.late, c.request = late{c.request, a.b, a.c}, request{}
}

// arriveLate has such a request arrive.
func (w *world) arriveLate(s *state, _ action) {
	l := s.late
	s.late = late{}
	w.serve(s, &l.request, l.contributor, l.series)
}

func (w *world) canRead(s *state, a action) bool {
	c := s.counter(a)
	return s.processes[a.a].alive && c.observed == unread && c.request.stage == idle && !c.pending.empty() && (a.a == a.b || s.leads(a.a))
}

// read reads the stored Event, and settles what it includes.
func (w *world) read(s *state, a action) {
	e, p, c := &s.events[a.c], &s.processes[a.a], s.counter(a)
	if !e.exists {
		c.observed = nothing
		return
	}
	c.observed = current
	share := e.shares[a.b]
	mayHave := sequence(maxSequence) // have been written, by this process or another
	if a.a == a.b {
		mayHave = max(c.carried, p.everSent)
	}
	if share == 0 {
		if e.full && (w.MissingUncertain || w.PushedOut && e.pushed.has(a.b)) {
			w.uncertain(s, a, mayHave)
		}
		return
	}
	upTo := share
	if !w.Sent && a.a == a.b {
		upTo = min(share, c.carried)
	}
	for i := range c.pending.len() {
		o := &c.pending[i]
		switch {
		case o.first <= share && share < o.last:
			w.breaks("the stored share is inside an entry of %s", processName(a.b))
			if w.Inside {
				upTo = o.last
			}
		case o.last <= upTo && mayHave < o.last:
			w.breaks("%s does not recognize the share of %s", processName(a.a), processName(a.b))
		case o.last <= upTo:
			p.counted |= o.occurrences
		}
	}
	w.settle(s, a, upTo)
}

// settle removes what is counted. Clients that wait are answered 201.
func (w *world) settle(s *state, a action, upTo sequence) {
	w.mark(s.counter(a), upTo)
	removed := w.remove(s, a, upTo)
	if a.a == a.b {
		s.answered |= removed &^ s.confirmed
	}
}

// uncertain removes what may be counted or not.
func (w *world) uncertain(s *state, a action, upTo sequence) {
	removed := w.remove(s, a, upTo)
	if s.events[a.c].pushed.has(a.b) {
		s.excused |= removed
	}
}

// remove removes what has settled.
func (w *world) remove(s *state, a action, upTo sequence) set {
	c := s.counter(a)
	removed := c.pending.remove(func(e *entry) bool {
		if e.last <= upTo {
			w.mark(c, e.last)
		}
		return e.last <= upTo
	})
	if a.a == a.b && removed != 0 {
		s.processes[a.a].at++
	}
	w.releaseOwn(s, a.a, a.b)
	return removed
}

// mark records up to where all has settled.
func (w *world) mark(c *counter, upTo sequence) {
	if w.Marks {
		c.settled = max(c.settled, upTo)
	}
}
