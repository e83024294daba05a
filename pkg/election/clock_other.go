//go:build !linux

package election

import "time"

// sinceBoot adds nothing to the monotonic clock.
func sinceBoot() time.Duration { return 0 }
