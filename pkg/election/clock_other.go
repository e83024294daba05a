//go:build !linux

package election

import "time"

// sinceBoot is not available: only the monotonic clock counts.
func sinceBoot() time.Duration { return 0 }
