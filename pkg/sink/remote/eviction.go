package remote

import "github.com/eventd/eventd/pkg/occurrence"

// evictFor makes place for an item of a queue, and returns what it evicts. It reports whether
// there is place. The mutex must be held.
func (s *Sink) evictFor(q *queue, i *item) (out []settled, ok bool) {
	for s.items >= s.options.MaxPendingItems || s.bytes+i.bytes > s.options.MaxPendingBytes {
		from, at := s.victim(q, i)
		if at < 0 {
			return out, false
		}
		victim := from.forming[at]
		from.removeForming(at)
		s.remove(from, victim)
		out = append(out, settled{victim, dropped(occurrence.PendingFull, nil)})
	}
	return out, true
}

// victim returns the place of an item that has not been sent: of the largest queue, if that
// is larger than the own one with the new item; otherwise a Warning evicts an own Normal. What
// was sent may be counted, and stays. The mutex must be held.
func (s *Sink) victim(q *queue, i *item) (from *queue, at int) {
	largest := q
	for _, other := range s.queues {
		if other.bytes > largest.bytes && len(other.forming) > 0 {
			largest = other
		}
	}
	if largest != q && largest.bytes > q.bytes+i.bytes {
		if at = newestNormal(largest); at < 0 {
			at = len(largest.forming) - 1
		}
		return largest, at
	}
	if i.isWarning() {
		return q, newestNormal(q)
	}
	return q, -1
}

func newestNormal(q *queue) int {
	for at := len(q.forming) - 1; at >= 0; at-- {
		if !q.forming[at].isWarning() {
			return at
		}
	}
	return -1
}

// remove accounts for an item that has left its queue. The mutex must be held.
func (s *Sink) remove(q *queue, i *item) {
	i.gone = true
	s.items--
	s.bytes -= i.bytes
	q.bytes -= i.bytes
	if q.isEmpty() {
		s.forget(q)
	}
}
