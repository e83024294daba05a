package correlator

import (
	"math"
	"time"
)

// budget is the token bucket of a subject. A write acquires a token. If there is none, it
// claims the next one, and is deferred until then.
//
// The bucket has two parts: the reserve, for first writes of series only, and the general
// part. Half of the refill goes to each. So series that repeat cannot delay the first
// writes of others. Tokens that do not fit into one part go to the other.
type budget struct {
	// Tokens of both parts. A negative number of tokens is claimed.
	general, reserve float64
	filled           time.Duration // time of the last refill
}

// bucket has the sizes and rates that are the same for all subjects.
type bucket struct {
	generalSize, reserveSize float64
	// Tokens per second.
	generalRate, reserveRate float64
	// settling is the number of series for which a full general part has a token for
	// the first write and one for the final count.
	settling float64
}

// reservedPart is the divisor of Burst that gives the size of the reserve.
const reservedPart = 5

// limitless is the rate, in tokens per second, from which on there is no limit. Rates such
// as math.MaxFloat64 (rate.Inf of golang.org/x/time/rate) would overflow.
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

// kept returns how many general tokens to keep for series that have not begun: two for
// each, of which one may come from the reserve.
func (k *bucket) kept(begun int, reserve float64) float64 {
	more := max(0, k.settling-float64(begun))
	return 2*more - min(more, max(0, math.Floor(reserve)))
}

func (k *bucket) full(now time.Duration) budget {
	return budget{general: k.generalSize, reserve: k.reserveSize, filled: now}
}

// fill refills both parts for the time since the last refill.
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
	b.add(k, elapsed*k.generalRate+spilt)
}

// add adds tokens to the general part, and what does not fit to the reserve.
func (b *budget) add(k *bucket, tokens float64) {
	b.general += tokens
	if spilt := b.general - k.generalSize; spilt > 0 { // false if both are infinite
		b.general -= spilt
		b.reserve = min(k.reserveSize, b.reserve+spilt)
	}
}

// acquireFirst acquires a token for the first write of a series, or claims the next one of
// either part. It leaves the general tokens that are kept for other series, if there is a
// reserved one. It returns how long to wait for the token.
func (b *budget) acquireFirst(k *bucket, kept float64) time.Duration {
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

// acquire acquires a general token, if there is one.
func (b *budget) acquire() bool {
	if b.general < 1 {
		return false
	}
	b.general--
	return true
}

// claim claims the next general token, and returns how long to wait for it.
func (b *budget) claim(k *bucket) time.Duration {
	wait := until(b.general, k.generalRate)
	b.general--
	return wait
}

// claimed reports whether a claim on either part is still open.
func (b *budget) claimed() bool { return b.general < 0 || b.reserve < 0 }

// forever is the upper bound of a wait.
const forever = 100 * 365 * 24 * time.Hour

// until returns how long it takes until there is one token.
func until(tokens, rate float64) time.Duration {
	seconds := (1 - tokens) / rate
	if !(seconds < forever.Seconds()) {
		return forever
	}
	return time.Duration(seconds * float64(time.Second))
}
