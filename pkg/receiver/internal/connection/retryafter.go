package connection

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter limits what a destination may ask to wait.
const MaxRetryAfter = time.Hour

// RetryAfter returns the wait that the value of a Retry-After header asks for, which is a number
// of seconds or a date (RFC 9110, section 10.2.3). It is between 0 and MaxRetryAfter, and 0 if the
// value says nothing.
func RetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if seconds, err := strconv.ParseUint(value, 10, 64); err == nil {
		return time.Duration(min(seconds, uint64(MaxRetryAfter/time.Second))) * time.Second
	}
	if date, err := http.ParseTime(value); err == nil {
		return ClampRetryAfter(date.Sub(now))
	}
	return 0
}

// ClampRetryAfter returns d, or the nearest of 0 and MaxRetryAfter.
func ClampRetryAfter(d time.Duration) time.Duration {
	return min(max(d, 0), MaxRetryAfter)
}
