package model

// checkWrite checks the properties of a write that takes effect.
func (w *world) checkWrite(s *state, r *request, contributor, series uint8) {
	e := &s.events[series]
	if twice := r.adds & e.count &^ e.forgot; twice != 0 {
		w.breaks("%b is counted twice", twice)
	}
	if refused := r.adds & s.refused; refused != 0 {
		w.breaks("%b is counted, though it was refused", refused)
	}
	// Whoever raises a share holds all that the contributor has pending up to the new one.
	p := &s.processes[contributor]
	for n := e.shares[contributor] + 1; n <= r.upTo; n++ {
		if missing := p.own[n] &^ (r.contains | s.ever | s.excused); p.series[n] == series && missing != 0 {
			w.breaks("the share of %s is raised to %d without %b", processName(contributor), r.upTo, missing)
		}
	}
}

// checkEnd checks a state in which nothing needs to happen any more.
func (w *world) checkEnd(s *state) {
	if lost := s.confirmed &^ (s.ever | s.excused); lost != 0 {
		w.breaks("%b is lost, though it was answered 202", lost)
	}
	for at := range s.processes {
		p := &s.processes[at]
		if !p.alive {
			continue
		}
		if lost := p.recorded() &^ (s.ever | s.excused); lost != 0 {
			w.breaks("%b is lost, though %s lives, which has recorded it", lost, processName(uint8(at)))
		}
		for c := range p.counters {
			for i := range p.counters[c] {
				if k := &p.counters[c][i]; !k.pending.empty() || k.request.stage != idle {
					w.breaks("%s never writes %b of %s", processName(uint8(at)), k.pending.all(), processName(uint8(c)))
				}
			}
			if left := p.held[c].all(); left != 0 {
				w.breaks("%s holds %b of %s for ever", processName(uint8(at)), left, processName(uint8(c)))
			}
		}
	}
}
