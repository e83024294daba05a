package correlator

import (
	"math"
	"time"
)

// budget is the token bucket of a subject. A write takes a token; if there is
// none it claims the next one, and waits until that comes.
//
// A part of the bucket, and a half of what flows into it, is for the first
// writes of series alone, so that series which repeat themselves cannot silence
// those that have not been heard yet. What does not fit into one part flows on
// into the other.
type budget struct {
	// tokens of both parts; what is below zero is claimed.
	general, reserve float64
	filled           time.Duration // when it was last filled
}

// bucket is what the budgets of all subjects have in common.
type bucket struct {
	generalSize, reserveSize float64
	// tokens per second
	generalRate, reserveRate float64
	// settling is how many series can have a first write and one for their
	// final count from a full bucket.
	settling float64
}

// reservedPart of a burst is for first writes.
const reservedPart = 5

// limitless and more tokens per second are no limit: one comes in every nanosecond.
// math.MaxFloat64 is such a rate too, which is what golang.org/x/time/rate calls
// infinite, and with which no sum of tokens could be made.
const limitless = 1e9

func newBucket(burst int, qps float64) bucket {
	if qps >= limitless {
		return bucket{generalSize: math.Inf(1), generalRate: math.Inf(1)}
	}
	reserve := float64(burst / reservedPart)
	b := bucket{generalSize: float64(burst) - reserve, reserveSize: reserve, generalRate: qps}
	if reserve > 0 {
		b.generalRate, b.reserveRate = qps/2, qps/2
	}
	b.settling = math.Floor(b.generalSize / 2)
	return b
}

// kept is how many tokens to keep for series that have not begun, if so many have:
// two for each, one of which may come from the reserve.
func (k *bucket) kept(begun int, reserve float64) float64 {
	more := max(0, k.settling-float64(begun))
	return 2*more - min(more, max(0, math.Floor(reserve)))
}

func (k *bucket) full(now time.Duration) budget {
	return budget{general: k.generalSize, reserve: k.reserveSize, filled: now}
}

// fill adds what has come since the last time.
func (b *budget) fill(k *bucket, now time.Duration) {
	if now <= b.filled || b.general == k.generalSize && b.reserve == k.reserveSize {
		b.filled = now
		return
	}
	elapsed := (now - b.filled).Seconds()
	b.filled = now
	b.reserve += elapsed * k.reserveRate
	spilt := max(0, b.reserve-k.reserveSize)
	b.reserve -= spilt
	b.give(k, elapsed*k.generalRate+spilt)
}

// give adds tokens, in the first place to the general part.
func (b *budget) give(k *bucket, tokens float64) {
	b.general += tokens
	if spilt := b.general - k.generalSize; spilt > 0 { // and not if both are infinite
		b.general -= spilt
		b.reserve = min(k.reserveSize, b.reserve+spilt)
	}
}

// takeFirst takes a token for the first write of a series: a reserved one if the
// others are kept for something. It returns how long the write has to wait for it.
func (b *budget) takeFirst(k *bucket, kept float64) time.Duration {
	switch {
	case b.general >= 1+kept, b.general >= 1 && b.reserve < 1:
		b.general--
		return 0
	case b.reserve >= 1:
		b.reserve--
		return 0
	}
	general, reserve := until(b.general, k.generalRate), until(b.reserve, k.reserveRate)
	if general <= reserve {
		b.general--
		return general
	}
	b.reserve--
	return reserve
}

// take takes a token of the general part, if it has one.
func (b *budget) take() bool {
	if b.general < 1 {
		return false
	}
	b.general--
	return true
}

// claim takes the token of the general part that comes next. It returns how
// long that takes.
func (b *budget) claim(k *bucket) time.Duration {
	wait := until(b.general, k.generalRate)
	b.general--
	return wait
}

// claimed tells whether tokens are claimed that have not come yet, of either part:
// a first write claims of the one whose token comes sooner.
func (b *budget) claimed() bool { return b.general < 0 || b.reserve < 0 }

// forever is longer than anything waits.
const forever = 100 * 365 * 24 * time.Hour

// until is how long it takes until there is one token.
func until(tokens, rate float64) time.Duration {
	seconds := (1 - tokens) / rate
	if !(seconds < forever.Seconds()) {
		return forever
	}
	return time.Duration(seconds * float64(time.Second))
}
