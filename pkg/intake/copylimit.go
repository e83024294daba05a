package intake

import (
	"sync/atomic"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
)

// maxCopyBytes is what genericapiserver.NewConfig sets (JSONPatchMaxCopyBytes).
const maxCopyBytes = 3 << 20

// limitCopies limits the size of all copy operations of one JSON patch. Without a limit
// a patch of one kilobyte makes gigabytes. The limit is that of the process, as the
// library has none for a handler; the lowest one holds, as in
// genericapiserver.Config.New. An Event may be no larger than a body, so no valid patch
// needs more.
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
