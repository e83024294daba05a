package frame

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// writes is called for each write to a connection.
type writes func([]byte)

// Write implements io.Writer.
func (w writes) Write(p []byte) (int, error) {
	w(p)
	return len(p), nil
}

// However answers are added, each is written once, in the order of its goroutine, and as soon as the write before
// has ended and, unless it is urgent, began linger ago.
func TestNoFrameWaitsLongerThanItMust(t *testing.T) {
	const goroutines, each = 8, 50
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			start, slowest := time.Now(), []time.Duration{1, linger / 2, 8 * linger}[seed%3]
			var added, lingers [goroutines * each]time.Duration
			var next [goroutines]int
			var lastBegan, lastEnded time.Duration
			random := rand.New(rand.NewPCG(seed, goroutines))
			w := NewWriter(writes(func(p []byte) {
				now, from := time.Since(start), NewReader(bytes.NewReader(p))
				for _, id, _, err := from.Next(); err == nil; _, id, _, err = from.Next() {
					g := id / each
					if latest := max(added[id], lastEnded, lastBegan+lingers[id]); now > latest || int(id%each) != next[g] {
						t.Errorf("seed %d: frame %d of goroutine %d, want %d, is written %s late", seed, id%each, g, next[g], now-latest)
					}
					next[g]++
				}
				time.Sleep(time.Duration(random.Int64N(int64(slowest))))
				lastBegan, lastEnded = now, time.Since(start)
			}))
			var adding, running sync.WaitGroup
			running.Go(func() { _ = w.Run() })
			for g := range goroutines {
				adding.Go(func() {
					random := rand.New(rand.NewPCG(seed, uint64(g)))
					for id := g * each; id < (g+1)*each; id++ {
						time.Sleep(time.Duration(random.Int64N(int64(linger))) * time.Duration(random.IntN(2)))
						urgent := random.IntN(8) == 0
						_ = w.AddAnswer(uint64(id), make([]byte, random.IntN(20<<10)), func() bool {
							if added[id] = time.Since(start); !urgent {
								lingers[id] = linger
							}
							return urgent
						})
					}
				})
			}
			adding.Wait()
			time.Sleep(10 * linger)
			w.Close()
			running.Wait()
			for g, n := range next {
				if n != each {
					t.Errorf("seed %d: %d frames of goroutine %d are written", seed, n, g)
				}
			}
		})
	}
}
