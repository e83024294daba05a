package scheduler

import "time"

// limiter is an adaptive limit (AIMD) of the series that are written at once, and so of
// the requests in flight. Series whose slots are lent (hanging.go) do not count. A 429 or
// 503, missing answers and a high mean latency decrease the limit by a factor; answers in
// good time increase it. Isolated slow answers are ignored: there are some on every shared
// machine.
//
// The limit at which the apiserver was overloaded last is remembered. Up to it the limit
// grows quickly, near it slowly, until more turns out to be possible. So the limit stays
// close to what the apiserver takes, and few requests are refused to find that out.
//
// It is not safe for concurrent use; the owner of the Scheduler guards it.
type limiter struct {
	floor, ceiling float64
	slow           time.Duration // a mean latency as high as this decreases the limit

	limit     float64
	decreased time.Time
	latency   latency // mean since the limit was decreased
	// overloadedAt is the limit at the last overload, 0 if it is unknown or outdated;
	// grown is the time of the last answer since.
	overloadedAt float64
	grown        time.Time
	inUse        int // slots
}

const (
	// decrease is the factor of a decrease.
	decrease = 0.8
	// growBack is the increase for each answer below overloadedAt, and growOn above.
	growBack, growOn = 1. / 8, 1. / 4
	// Near overloadedAt the limit increases by one for each answersClose answers, or in
	// timeClose; one request may be refused for that. A refusal costs about a third of
	// the throughput of one round trip, so a higher limit takes more answers.
	answersClose        = 512
	answersClosePerSlot = 16
	timeClose           = 5 * time.Second
)

// newLimiter returns a limiter that begins at its ceiling.
func newLimiter(floor, ceiling int, slow time.Duration) *limiter {
	return &limiter{floor: float64(floor), ceiling: float64(ceiling), slow: slow, limit: float64(ceiling)}
}

// size returns the number of slots.
func (l *limiter) size() int { return int(l.limit) }

func (l *limiter) isFull() bool { return l.inUse >= l.size() }

func (l *limiter) acquire() { l.inUse++ }

func (l *limiter) release() { l.inUse-- }

// overloaded records that the apiserver was overloaded for a request begun at a time.
func (l *limiter) overloaded(began, now time.Time) {
	if began.Before(l.decreased) {
		return // the limit was decreased since
	}
	l.overloadedAt, l.decreased, l.grown, l.latency = l.limit, now, now, 0
	l.limit = max(l.floor, l.limit*decrease)
}

// slowAnswer records an answer that took long to a request begun at a time.
func (l *limiter) slowAnswer(began, now time.Time) {
	if !began.Before(l.decreased) && l.latency.add(now.Sub(began), 1/l.limit) >= l.slow {
		l.overloaded(began, now)
	}
}

// grow records an answer in good time to a request begun at a time.
func (l *limiter) grow(began, now time.Time) {
	since := now.Sub(l.grown)
	l.grown = now
	if began.Before(l.decreased) {
		return // it says nothing about the present limit
	}
	l.latency.add(now.Sub(began), 1/l.limit)
	switch {
	case l.limit < l.overloadedAt-1:
		l.limit = min(l.limit+growBack, l.overloadedAt-1)
	case l.limit < l.overloadedAt+1:
		l.limit += max(1/max(answersClose, answersClosePerSlot*l.limit), min(since.Seconds()/timeClose.Seconds(), growBack))
	default:
		l.overloadedAt = 0
		l.limit += growOn
	}
	l.limit = min(l.ceiling, l.limit)
}

// latency is a mean of the latency of answers, weighted to recent ones. It begins at 0:
// the number of slow answers until it is high depends on how slow they are.
type latency time.Duration

// add adds an answer with a weight, and returns the mean.
func (l *latency) add(took time.Duration, weight float64) time.Duration {
	*l += latency(float64(took-time.Duration(*l)) * weight)
	return time.Duration(*l)
}
