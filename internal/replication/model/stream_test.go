package model

// Recording, and the stream from a leader to its followers.

// canPost: occurrences are posted in order.
func (w *world) canPost(s *state, _ action) bool {
	i := s.posted
	if int(i) == len(w.occurrences) || w.occurrences[i].total > 1 && !(s.confirmed|s.answered).has(i-1) {
		return false
	}
	return w.canRecord(s, i)
}

// canRecord: the leader records each occurrence once. The rest are bounds.
func (w *world) canRecord(s *state, i uint8) bool {
	if !s.leads(s.leader) {
		return false
	}
	p := &s.processes[s.leader]
	return !p.recorded().has(i) && p.last < maxSequence && p.counters[s.leader][w.occurrences[i].series].pending.len() < maxEntries
}

func (s *state) leads(p uint8) bool { return s.processes[p].alive && s.leader == p }

// recorded returns all occurrences that the process has recorded.
func (p *process) recorded() (out set) {
	for _, o := range p.own {
		out |= o
	}
	return out
}

// post has a client post the next occurrence.
func (w *world) post(s *state, _ action) {
	s.posted++
	w.record(s, s.leader, s.posted-1)
}

// canRetry: a client that was not answered posts again, to another leader.
func (w *world) canRetry(s *state, a action) bool {
	return s.left.retries > 0 && a.a < s.posted && w.occurrences[a.a].client > 0 && !(s.confirmed | s.answered).has(a.a) && w.canRecord(s, a.a)
}

func (w *world) retry(s *state, a action) {
	s.left.retries--
	w.record(s, s.leader, a.a)
}

// record adds an occurrence to what the process has pending, as an entry of its own.
func (w *world) record(s *state, at, i uint8) {
	p, o := &s.processes[at], w.occurrences[i]
	p.last++
	p.at++
	p.own[p.last], p.series[p.last] = w.reported(p, i), o.series
	s.refused &^= p.own[p.last]
	c := &p.counters[at][o.series]
	c.pending[c.pending.len()] = entry{first: p.last, last: p.last, occurrences: p.own[p.last]}
}

// reported returns the occurrences that a report includes: of a client that counts, all up to its
// total that are not known to be counted.
func (w *world) reported(p *process, i uint8) (out set) {
	o := w.occurrences[i]
	if o.client == 0 {
		return 1 << i
	}
	known := p.counted
	if !w.Totals {
		for c := range p.held {
			known |= p.held[c].all() // as if the views of others were copied
		}
	}
	for j, other := range w.occurrences {
		if other.client == o.client && other.total <= o.total && !known.has(uint8(j)) {
			out |= 1 << j
		}
	}
	return out | 1<<i
}

// canAccept: without the rule Held, the leader answers 202 while all followers are late.
func (w *world) canAccept(s *state, a action) bool {
	p := &s.processes[s.leader]
	return !w.Held && s.leads(s.leader) && p.recorded().has(a.a) && !(s.confirmed | s.answered | s.ever).has(a.a) && !w.occurrences[a.a].awaited
}

// accept answers 202 as if another process held the occurrence.
func (w *world) accept(s *state, a action) {
	s.confirmed |= 1 << a.a
	for p := range s.processes {
		if s.processes[p].alive {
			s.safe[a.a] |= 1 << p
		}
	}
}

// canRefuse: no follower has acknowledged an entry of the leader in time.
func (w *world) canRefuse(s *state, a action) bool {
	p := &s.processes[s.leader]
	c := &p.counters[s.leader][a.a]
	if s.left.refusals == 0 || !s.leads(s.leader) || int(a.b) >= c.pending.len() {
		return false
	}
	e := &c.pending[a.b]
	return e.occurrences&(s.confirmed|s.answered) == 0 && (!w.Unsent || e.last > max(c.carried, p.everSent))
}

// refuse withdraws an entry, and answers 429.
func (w *world) refuse(s *state, a action) {
	s.left.refusals--
	p := &s.processes[s.leader]
	e := p.counters[s.leader][a.a].pending[a.b]
	for n := e.first; n <= e.last; n++ {
		if p.series[n] == a.a {
			p.own[n] = 0
		}
	}
	s.refused |= e.occurrences
	for other := range s.processes { // the client may have posted it to another leader before
		s.refused &^= s.processes[other].recorded()
	}
	p.counters[s.leader][a.a].pending.remove(func(other *entry) bool { return *other == e })
	p.at++
}

// canMerge: an entry that no write has carried may be merged with the next one.
func (w *world) canMerge(s *state, a action) bool {
	p, at := &s.processes[a.a], int(a.c)
	c := &p.counters[a.a][a.b]
	if s.left.merges == 0 || !p.alive || at+1 >= c.pending.len() {
		return false
	}
	one, next := &c.pending[at], &c.pending[at+1]
	if one.last <= c.carried {
		return false
	}
	if !w.Cut {
		return true
	}
	if one.sealed {
		return false
	}
	for q := range p.streams {
		f := &p.streams[q]
		if (f.open || w.HoldsMore) && one.last <= f.sent && next.last > f.acked {
			return false
		}
	}
	return true
}

func (w *world) merge(s *state, a action) {
	s.left.merges--
	e := &s.processes[a.a].counters[a.a][a.b].pending
	next := e[a.c+1]
	e[a.c].last, e[a.c].sealed = next.last, next.sealed
	e[a.c].occurrences |= next.occurrences
	copy(e[a.c+1:], e[a.c+2:])
	e[maxEntries-1] = entry{}
}

// canConnect: a process follows the leader.
func (w *world) canConnect(s *state, a action) bool {
	return a.a != a.b && s.leads(a.a) && s.processes[a.b].alive && !s.processes[a.a].streams[a.b].open
}

func (w *world) connect(s *state, a action) {
	p := &s.processes[a.a]
	f := &p.streams[a.b]
	*f = stream{open: true, sent: f.sent, acked: f.acked}
	if !w.Snapshot {
		f.after = p.last
	}
	if !w.Whole {
		s.processes[a.b].held[a.a] = holding{}
	}
}

// canBatch: the follower lacks something.
func (w *world) canBatch(s *state, a action) bool {
	p := &s.processes[a.a]
	f := &p.streams[a.b]
	return p.alive && f.open && !f.inFlight && f.sentAt != p.at
}

// batch sends all changes since the last batch. What the follower then holds is written down as a
// whole; after says from where on the batch contains additions.
func (w *world) batch(s *state, a action) {
	p := &s.processes[a.a]
	f := &p.streams[a.b]
	f.batch = holding{at: p.at, upTo: p.last}
	for i := range p.counters[a.a] {
		f.batch.pending[i] = p.counters[a.a][i].pending
		if !w.SendAll {
			f.batch.pending[i].remove(w.isAwaited)
		}
	}
	f.inFlight, f.sentAt, f.sent = true, p.at, max(f.sent, p.last)
	p.everSent = p.last
}

func (w *world) isAwaited(e *entry) bool {
	for i, o := range w.occurrences {
		if e.occurrences.has(uint8(i)) && !o.awaited {
			return false
		}
	}
	return true
}

// deliver applies a batch, all of it at once.
func (w *world) deliver(s *state, a action) {
	f, q := &s.processes[a.a].streams[a.b], &s.processes[a.b]
	old, b := &q.held[a.a], f.batch
	for i := range b.pending {
		if f.after > 0 {
			missing := old.upTo // additions that no batch contained
			b.pending[i].remove(func(e *entry) bool { return missing < e.last && e.last <= f.after })
		}
		if !w.Replace && !f.received {
			b.pending[i] = union(old.pending[i], b.pending[i])
		}
		if !w.Mirror {
			mergeAll(&b.pending[i])
		}
	}
	q.told[a.a] |= old.all() &^ f.batch.all()
	*old = b
	f.received, f.inFlight, f.after, f.batch = true, false, f.batch.upTo, holding{}
	if w.atOnce && w.canAck(s, a) {
		w.ack(s, a)
	}
}

// union adds the earlier entries that are missing.
func union(earlier, later entries) entries {
	earlier.remove(func(e *entry) bool { return later.len() > 0 && e.last >= later[0].first })
	n := earlier.len()
	copy(earlier[n:], later[:maxEntries-n])
	return earlier
}

func mergeAll(e *entries) {
	if n := e.len(); n > 1 {
		*e = entries{{first: e[0].first, last: e[n-1].last, occurrences: e.all()}}
	}
}

// loseBatch has a batch be lost, after which the next one arrives.
func (w *world) loseBatch(s *state, a action) {
	s.left.disconnects--
	f := &s.processes[a.a].streams[a.b]
	f.received, f.inFlight, f.after, f.batch = true, false, f.batch.upTo, holding{}
}

func (w *world) canAck(s *state, a action) bool {
	p := &s.processes[a.a]
	f := &p.streams[a.b]
	return p.alive && f.open && f.received && f.ackedAt != s.processes[a.b].held[a.a].at
}

// ack acknowledges all up to the position of the follower, and answers the clients 202.
func (w *world) ack(s *state, a action) {
	p, h := &s.processes[a.a], &s.processes[a.b].held[a.a]
	f := &p.streams[a.b]
	f.ackedAt, f.acked = h.at, max(f.acked, h.upTo)
	if w.AskAgain && !s.leads(a.a) {
		return
	}
	for n := sequence(1); n <= h.upTo; n++ {
		for i, o := range w.occurrences {
			i := uint8(i)
			if !p.own[n].has(i) || o.awaited || s.answered.has(i) {
				continue
			}
			if !s.confirmed.has(i) {
				s.confirmed |= 1 << i
				s.safe[i] |= 1 << a.a
			}
			if s.processes[a.b].alive {
				s.safe[i] |= 1 << a.b
			}
		}
	}
}

// canDisconnect: a stream breaks, or ends since its contributor does not lead or a side is dead.
func (w *world) canDisconnect(s *state, a action) bool {
	return s.processes[a.a].streams[a.b].open && (s.left.disconnects > 0 || mustDisconnect(w, s, a))
}

func mustDisconnect(_ *world, s *state, a action) bool {
	return !s.leads(a.a) || !s.processes[a.b].alive
}

func (w *world) disconnect(s *state, a action) {
	if !mustDisconnect(w, s, a) {
		s.left.disconnects--
	}
	p := &s.processes[a.a]
	f := &p.streams[a.b]
	if w.Seal {
		for i := range p.counters[a.a] {
			p.counters[a.a][i].pending.seal(f.acked, f.sent)
		}
	}
	*f = stream{sent: f.sent, acked: f.acked}
	if !w.HoldsMore {
		*f = stream{}
	}
}

// seal seals the entries with which a holding may end that has at least all up to acked, and
// nothing after sent.
func (e *entries) seal(acked, sent sequence) {
	n := e.len()
	for i := range n {
		if e[i].last <= sent && (i+1 == n || e[i+1].last > acked) {
			e[i].sealed = true
		}
	}
}
