package sink

// flushGenerations counts the pending entries of a sink by the flushes that they came
// before, so that Flush can wait for the entries that existed when it was called. Each
// Flush begins a new generation; usually there is one. It is not safe for concurrent use.
type flushGenerations struct {
	first  uint64 // the oldest generation that is counted
	counts []int  // entries of it, and of the later generations
}

func newFlushGenerations() *flushGenerations {
	return &flushGenerations{first: 1, counts: make([]int, 1)}
}

// enter counts an entry and returns its generation.
func (e *flushGenerations) enter() uint64 {
	last := len(e.counts) - 1
	e.counts[last]++
	return e.first + uint64(last)
}

// leave removes an entry of a generation, and reports whether a generation is over by
// that, which a Flush may wait for.
func (e *flushGenerations) leave(generation uint64) (over bool) {
	e.counts[generation-e.first]--
	for e.counts[0] == 0 {
		over = true
		if len(e.counts) == 1 {
			break
		}
		e.first++
		e.counts = e.counts[1:]
	}
	return over
}

// end begins a new generation unless the current one is empty, and returns the last one
// that has ended.
func (e *flushGenerations) end() uint64 {
	if last := len(e.counts) - 1; e.counts[last] > 0 {
		e.counts = append(e.counts, 0)
	}
	return e.first + uint64(len(e.counts)) - 2
}

// isOver reports whether a generation and all earlier ones have no entries.
func (e *flushGenerations) isOver(generation uint64) bool { return generation < e.first }
