package history

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

var (
	// ErrExpired is the error of a follower whose place is no longer kept, or was in another epoch.
	ErrExpired = errors.New("the history no longer has what follows this resourceVersion")
	// ErrInvalid is the error of a resourceVersion that no history has returned.
	ErrInvalid = errors.New("not a resourceVersion of the history")
)

// position is a point in the order of versions: all up to rv, in an epoch.
type position struct {
	epoch int64
	rv    uint64
}

// before orders points. Those of a former epoch are before all others.
func (p position) before(q position) bool {
	return p.epoch < q.epoch || p.epoch == q.epoch && p.rv < q.rv
}

// rank is the place of a version in a result: by the time of the Event, in microseconds since 1970, and then in the
// order of versions.
type rank struct {
	time int64
	at   position
}

func (r rank) before(q rank) bool { return compareRanks(r, q) < 0 }

func compareRanks(a, b rank) int {
	return cmp.Or(cmp.Compare(a.time, b.time), cmp.Compare(a.at.epoch, b.at.epoch), cmp.Compare(a.at.rv, b.at.rv))
}

// String is the cursor that clients have. It is a resourceVersion, unless etcd was restored.
func (p position) String() string {
	if p.epoch == 0 {
		return formatRV(p.rv)
	}
	return formatRV(p.rv) + "." + strconv.FormatInt(p.epoch, 10)
}

func parsePosition(s string) (p position, err error) {
	rv, epoch, dotted := strings.Cut(s, ".")
	p.rv, err = parseRV(rv)
	if err == nil && dotted {
		p.epoch, err = strconv.ParseInt(epoch, 10, 64)
	}
	if err != nil || p.String() != s {
		return position{}, fmt.Errorf("%w: %.40q", ErrInvalid, s)
	}
	return p, nil
}

func parseRV(s string) (uint64, error) { return strconv.ParseUint(s, 10, 64) }

func formatRV(rv uint64) string { return strconv.FormatUint(rv, 10) }
