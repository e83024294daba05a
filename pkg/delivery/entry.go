package delivery

import (
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/resourceversion"

	"github.com/eventd/eventd/pkg/observer"
)

const (
	// maxEntry bounds what is decoded of one key, in bytes. An entry takes about 150.
	maxEntry = 4096
	// maxEpoch bounds what somebody may have written as an epoch: it is counted up from there.
	maxEpoch = 1 << 53
)

// entry is what the ConfigMap stores for one receiver.
type entry struct {
	// ResourceVersion is empty if the epoch has begun, and nothing of it is settled.
	ResourceVersion string `json:"resourceVersion"`
	Epoch           int64  `json:"epoch"`
	// Updated is when the cursor moved.
	Updated time.Time `json:"updated"`
	// UnusedSince is when a leader first saw that no receiver has this name.
	UnusedSince time.Time `json:"unusedSince,omitzero"`
}

func (e entry) cursor() observer.Cursor {
	return observer.Cursor{Epoch: e.Epoch, ResourceVersion: e.ResourceVersion}
}

// expired reports whether the entry was unused for too long.
func (e entry) expired(now time.Time) bool {
	return !e.UnusedSince.IsZero() && now.Sub(e.UnusedSince) >= unusedTime
}

func (e entry) encode() string {
	text, err := json.Marshal(e)
	if err != nil { // its times are encodable
		panic(err)
	}
	return string(text)
}

var errNotACursor = errors.New("not a cursor")

// decodeEntry decodes what anybody with the right to write the ConfigMap may have written.
func decodeEntry(text string) (entry, error) {
	var e entry
	if len(text) > maxEntry {
		return entry{}, fmt.Errorf("%w: %d bytes", errNotACursor, len(text))
	}
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		return entry{}, err
	}
	e.Updated, e.UnusedSince = inSeconds(e.Updated), inSeconds(e.UnusedSince)
	switch {
	case !wellFormed(e.cursor()):
		return entry{}, fmt.Errorf("%w: epoch %d, resource version %q", errNotACursor, e.Epoch, e.ResourceVersion)
	case !encodable(e.Updated) || !encodable(e.UnusedSince):
		return entry{}, fmt.Errorf("%w: time out of range", errNotACursor)
	}
	return e, nil
}

// inSeconds is a time as it is stored.
func inSeconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

// encodable reports whether JSON can have a time: in UTC, its year may have five digits.
func encodable(t time.Time) bool { return t.Year() > 0 && t.Year() < 10_000 }

// wellFormed reports whether a cursor can be compared with others. One without a resource version
// is the beginning of an epoch, but not of the first one.
func wellFormed(c observer.Cursor) bool {
	if c.ResourceVersion == "" {
		return c.Epoch > 0 && c.Epoch < maxEpoch
	}
	_, err := resourceversion.CompareResourceVersion(c.ResourceVersion, c.ResourceVersion)
	return c.Epoch >= 0 && c.Epoch < maxEpoch && err == nil
}

// after reports whether the well-formed cursor a is after b, which may be zero.
func after(a, b observer.Cursor) bool {
	switch {
	case a.Epoch != b.Epoch:
		return a.Epoch > b.Epoch
	case a.ResourceVersion == "" || b.ResourceVersion == "":
		return a.ResourceVersion != ""
	}
	order, err := resourceversion.CompareResourceVersion(a.ResourceVersion, b.ResourceVersion)
	return err == nil && order > 0
}
