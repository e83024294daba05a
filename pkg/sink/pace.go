package sink

import (
	"time"

	"golang.org/x/time/rate"
)

// pace is how often there may be a request.
type pace struct{ *rate.Limiter }

func newPace(qps float64, burst int) pace { return pace{rate.NewLimiter(rate.Limit(qps), burst)} }

// after is how long it is until there may be the next one.
func (p pace) after(now time.Time) time.Duration {
	// Without a limit there is no telling how many there may be.
	if there := p.TokensAt(now); there < 1 {
		return time.Duration((1 - there) / float64(p.Limit()) * float64(time.Second))
	}
	return 0
}
