package sink

import (
	"testing"
	"time"
)

// Sequences cannot be guessed from those that are stored.
func TestSequencesHaveRandomGaps(t *testing.T) {
	c := newClocked()
	bubble(t, c, nil, func(t *testing.T, b *bench) {
		const n = 100
		small := 0
		for range n {
			before := b.sequence
			b.recordLater(0, time.Hour)
			if gap := b.sequence - before; gap < 1 || gap > maxGap {
				t.Errorf("a gap of %d", gap)
			} else if gap < maxGap/1000 {
				small++
			}
		}
		if small > n/10 {
			t.Errorf("%d of %d gaps are small", small, n)
		}
	})
}
