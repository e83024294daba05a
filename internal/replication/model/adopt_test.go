package model

// Leadership, and what others have pending.

func (w *world) canElect(s *state, a action) bool {
	if !s.processes[a.a].alive || s.leader == a.a {
		return false
	}
	return !s.leads(s.leader) || s.left.moves > 0
}

// elect has a process acquire the Lease. What the former leader has adopted it only holds from then
// on.
func (w *world) elect(s *state, a action) {
	if s.leads(s.leader) {
		s.left.moves--
	}
	former := &s.processes[s.leader]
	for c := range former.counters {
		if c == int(s.leader) {
			continue
		}
		for i := range former.counters[c] {
			k := &former.counters[c][i]
			*k = counter{request: k.request, settled: k.settled}
		}
		former.adoptedAt[c] = 0
	}
	s.leader = a.a
}

// start starts a process.
func (w *world) start(s *state, a action) {
	s.left.starts--
	s.processes[a.a].alive = true
}

// crash ends a process. A request of it may still arrive.
func (w *world) crash(s *state, a action) {
	s.left.crashes--
	p := &s.processes[a.a]
	for c := range p.counters {
		for i := range p.counters[c] {
			if r := p.counters[c][i].request; r.stage == sent && s.late == (late{}) {
				s.late = late{r, uint8(c), uint8(i)}
			}
		}
	}
	*p = process{dead: true, own: p.own, series: p.series, streams: p.streams}
	for q := range p.streams { // a batch may still be delivered
		f := &p.streams[q]
		f.sentAt, f.sent, f.ackedAt, f.acked = 0, 0, 0, 0
	}
	for i := range s.safe {
		if !s.confirmed.has(uint8(i)) {
			continue
		}
		if s.safe[i] &^= 1 << a.a; s.safe[i] == 0 && !s.ever.has(uint8(i)) {
			s.excused |= 1 << i
		}
	}
}

// canHand: a process (a) gives what it holds of a contributor (b) to the leader. That may be only
// the knowledge that all had settled.
func (w *world) canHand(s *state, a action) bool {
	if a.a == a.b || !s.processes[a.a].alive || !s.leads(s.leader) || w.Own && s.leader == a.b {
		return false
	}
	from, to := &s.processes[a.a], &s.processes[s.leader]
	h := &from.held[a.b]
	switch {
	case h.at == 0, h.all() == 0 && !w.Empty, !w.Hand && a.a != s.leader:
		return false
	case w.Ended && (s.processes[a.b].streams[a.a].open || s.leader != a.b && s.processes[a.b].streams[s.leader].open):
		return false
	case s.leader == a.b, !w.Newest: // the former only without the rule Own
		return to.adoptedAt[a.b] == 0
	}
	return h.at > to.adoptedAt[a.b] && h.at >= to.held[a.b].at
}

func (w *world) hand(s *state, a action) {
	from, to := &s.processes[a.a], &s.processes[s.leader]
	h := from.held[a.b]
	to.adoptedAt[a.b] = h.at
	if s.leader == a.b { // only without the rule Own
		for i := range h.pending {
			to.counters[a.b][i].pending = union(h.pending[i], to.counters[a.b][i].pending)
		}
		return
	}
	for i := range h.pending {
		c := &to.counters[a.b][i]
		c.pending, c.observed = h.pending[i], nothing
		c.pending.remove(func(e *entry) bool { return e.last <= c.settled })
		if w.ReadFirst {
			c.observed = unread
		}
	}
	to.held[a.b] = h
	w.releaseOwn(s, s.leader, a.b)
	for i := range s.safe {
		if s.safe[i].has(a.a) && h.all().has(uint8(i)) {
			s.safe[i] |= 1 << s.leader
		}
	}
	if !w.Keep && a.a != s.leader {
		from.held[a.b].pending = [maxSeries]entries{}
	}
}

// hasAdopted reports whether all settled that a process has adopted of a contributor.
func (p *process) hasAdopted(contributor uint8) bool {
	if p.adoptedAt[contributor] == 0 {
		return false
	}
	for i := range p.counters[contributor] {
		if c := &p.counters[contributor][i]; !c.pending.empty() || c.request.stage != idle {
			return false
		}
	}
	return true
}

// releaseOwn has whoever has adopted everything no longer hold it.
func (w *world) releaseOwn(s *state, p, contributor uint8) {
	if s.processes[p].hasAdopted(contributor) {
		s.processes[p].held[contributor].pending = [maxSeries]entries{}
	}
}

// canRelease: a process (a) tells another one (b) that all of a contributor (c) has settled.
func (w *world) canRelease(s *state, a action) bool {
	p, q := &s.processes[a.a], &s.processes[a.b]
	if a.a == a.c || a.b == a.c || a.a == a.b || !p.alive || !q.alive || q.held[a.c].all() == 0 || s.processes[a.c].streams[a.b].open {
		return false
	}
	return p.hasAdopted(a.c) && (q.held[a.c].at <= p.adoptedAt[a.c] || !w.Newest)
}

func (w *world) release(s *state, a action) {
	s.processes[a.b].held[a.c].pending = [maxSeries]entries{}
}

const (
	maxSinks     = 8  // of the list of contributors
	otherClients = 99 // more than the list of clients takes
)

// expire removes an Event from the apiserver.
func (w *world) expire(s *state, a action) {
	s.left.expiries--
	s.events[a.a] = stored{}
	s.changed(a.a)
}

// others has as many other contributors write the Event as the list takes.
func (w *world) others(s *state, a action) {
	s.left.others--
	e := &s.events[a.a]
	for p := range e.shares {
		if e.shares[p] > 0 {
			e.pushed |= 1 << p
		}
	}
	e.full, e.shares = true, [maxProcesses]sequence{}
	e.number += maxSinks
	s.changed(a.a)
}

// names has more other clients counted than the list takes.
func (w *world) names(s *state, a action) {
	s.left.names--
	e := &s.events[a.a]
	e.forgot |= e.count
	e.totals = [maxClients]uint8{}
	e.number += otherClients
	s.changed(a.a)
}
