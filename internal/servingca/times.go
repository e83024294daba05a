package servingca

import "time"

const day = 24 * time.Hour

// Times are all times of the package. Tests use seconds.
type Times struct {
	// Backdate is how long before its issue a certificate is valid: clocks of clients and of
	// apiservers may be behind by that much.
	Backdate time.Duration
	// CALife is how long a CA is valid from its issue, and CARenewBefore how long before its end it
	// is replaced.
	CALife, CARenewBefore time.Duration
	// LeafLife is how long a serving certificate is valid from its issue, and LeafRenewAfter after
	// which time it is renewed, or up to a tenth earlier.
	LeafLife, LeafRenewAfter time.Duration
	// PublishFor is how long a new CA is published before it signs for clients that trust another
	// one. A kubelet updates a mounted ConfigMap within about two minutes, but programs may read
	// the file rarely.
	PublishFor time.Duration
	// RetireAfter is how long a CA stays published that no longer signs. It is longer than LeafLife.
	RetireAfter time.Duration
	// Resync is the time between two reads without a change, and RetryAfter that after a failure.
	Resync, RetryAfter time.Duration
	// CallTimeout limits one request to the apiserver.
	CallTimeout time.Duration
}

// DefaultTimes returns the times of a cluster. A serving certificate is valid for 7 days, and
// renewed after two thirds of them. If it is judged by a clock that is a day off, and was issued by
// one that is off by a day in the other direction, it is still valid.
func DefaultTimes() Times {
	return Times{
		Backdate: 2 * day,
		CALife:   365 * day, CARenewBefore: 120 * day,
		LeafLife: 5 * day, LeafRenewAfter: 64 * time.Hour,
		PublishFor: day, RetireAfter: 7 * day,
		Resync: 5 * time.Minute, RetryAfter: 5 * time.Second,
		CallTimeout: 5 * time.Second,
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

func later(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
