package sink

// epochs count the entries that a sink holds by when they came, so that one can
// wait for those that were there at a time. An epoch ends when somebody begins to
// wait; usually there is one.
type epochs struct {
	first  uint64 // the oldest that is counted
	counts []int  // of it, and of those after it
}

func newEpochs() *epochs { return &epochs{first: 1, counts: make([]int, 1)} }

// enter counts an entry, and returns its epoch.
func (e *epochs) enter() uint64 {
	last := len(e.counts) - 1
	e.counts[last]++
	return e.first + uint64(last)
}

// leave takes an entry of an epoch out. It tells whether an epoch is over by that
// which somebody may wait for.
func (e *epochs) leave(epoch uint64) (over bool) {
	e.counts[epoch-e.first]--
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

// end ends the present epoch, if there is anything in it, and returns the last that
// has ended.
func (e *epochs) end() uint64 {
	if last := len(e.counts) - 1; e.counts[last] > 0 {
		e.counts = append(e.counts, 0)
	}
	return e.first + uint64(len(e.counts)) - 2
}

// isOver tells whether there are no entries of an epoch and those before it.
func (e *epochs) isOver(epoch uint64) bool { return epoch < e.first }
