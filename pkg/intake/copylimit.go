package intake

import (
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// maxCopyBytes is what genericapiserver.NewConfig sets (JSONPatchMaxCopyBytes).
const maxCopyBytes = 3 << 20

// limitCopies bounds what the copy operations of one JSON patch may add up to, for
// all JSON patches of the process: there is no limit for one handler, and without
// one a kilobyte of patch makes gigabytes. Of several limits the lowest counts, as
// in genericapiserver.Config.New. An Event may be no larger than a body, so there is
// nothing to gain from more copies than that.
func limitCopies(maxBody int64) {
	limit := copyLimit(maxBody)
	for {
		existing := atomic.LoadInt64(&jsonpatch.AccumulatedCopySizeLimit)
		if existing > 0 && existing <= limit {
			return
		}
		if atomic.CompareAndSwapInt64(&jsonpatch.AccumulatedCopySizeLimit, existing, limit) {
			return
		}
	}
}

func copyLimit(maxBody int64) int64 { return min(maxCopyBytes, maxBody) }
