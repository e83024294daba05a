package observer

import (
	"sort"
	"time"

	"github.com/eventd/eventd/internal/eventsize"
)

// versionBytes is the size of a Version without its Event, and of its place in a slice that has
// grown, in bytes.
const versionBytes = 96

// sizes are where something ends. Tests make them smaller.
type sizes struct {
	// blockVersions and blockBytes end a block: a number of versions, or a size before the encoding,
	// in bytes of memory.
	blockVersions int
	blockBytes    int64
	// fetchBytes closes a watch of a reader's own, in bytes of memory. Within it, nobody waits for
	// the receiver.
	fetchBytes int64
	// page is the number of Events in a page of a list.
	page int64
}

var defaultSizes = sizes{blockVersions: 256, blockBytes: 1 << 20, fetchBytes: 1 << 20, page: 250}

// buffer is a log of versions by sequence number: sealed blocks, and after them the head, which is
// decoded. It is not safe for concurrent use, but slices that it has returned do not change.
type buffer struct {
	sizes  sizes
	blocks []*block // oldest first
	head   []Version
	// first and next are the sequence numbers of the oldest version, and of the next one to add.
	first, next int64
	// removed is the resourceVersion of the last version that was removed.
	removed string
	// headBytes and sealedBytes are sizes in memory.
	headBytes, sealedBytes int64
}

func sizeOf(v Version) int64 { return eventsize.Of(v.Event) + versionBytes }

func (b *buffer) bytes() int64 { return b.headBytes + b.sealedBytes }

// headFirst is the sequence number of the first version in the head.
func (b *buffer) headFirst() int64 { return b.next - int64(len(b.head)) }

func (b *buffer) add(v Version) {
	b.head = append(b.head, v)
	b.headBytes += sizeOf(v)
	b.next++
}

// sealable returns the run of the head that is due to be sealed, or removed. The head keeps as much
// again, so that readers that are almost up to date decode nothing.
func (b *buffer) sealable() []Version {
	if len(b.head) < 2*b.sizes.blockVersions && b.headBytes < 2*b.sizes.blockBytes {
		return nil
	}
	bytes := int64(0)
	for i, v := range b.head {
		if bytes += sizeOf(v); i+1 == b.sizes.blockVersions || bytes >= b.sizes.blockBytes {
			return b.head[:i+1]
		}
	}
	return b.head
}

// sealed replaces the beginning of the head by a block that encodes it.
func (b *buffer) sealed(as *block) {
	b.cut(len(as.times))
	b.blocks = append(b.blocks, as)
	b.sealedBytes += as.bytes()
}

// cut removes n versions from the head, and leaves b.first to the caller.
func (b *buffer) cut(n int) {
	for _, v := range b.head[:n] {
		b.headBytes -= sizeOf(v)
	}
	// A copy: readers may hold the old slice, and its array would keep what was cut alive.
	b.head = append(make([]Version, 0, 2*b.sizes.blockVersions), b.head[n:]...)
}

// removeBlock removes the oldest block. There must be one.
func (b *buffer) removeBlock() {
	oldest := b.blocks[0]
	b.blocks[0] = nil
	b.blocks = b.blocks[1:]
	b.sealedBytes -= oldest.bytes()
	b.first, b.removed = oldest.end(), oldest.last
}

// removeBefore removes blocks, and the part of the head that is due to be sealed, as far as they are
// below a sequence number.
func (b *buffer) removeBefore(seq int64) {
	for len(b.blocks) > 0 && b.blocks[0].end() <= seq {
		b.removeBlock()
	}
	if len(b.blocks) > 0 {
		return
	}
	for due := b.sealable(); due != nil && b.first+int64(len(due)) <= seq; due = b.sealable() {
		b.first += int64(len(due))
		b.removed = due[len(due)-1].Event.ResourceVersion
		b.cut(len(due))
	}
}

// from returns the versions from a sequence number on, as far as they are in one run: either
// decoded, or the block that they are in. seq must be in the buffer.
func (b *buffer) from(seq int64) ([]Version, *block) {
	if at := b.headFirst(); seq >= at {
		return b.head[seq-at : len(b.head) : len(b.head)], nil
	}
	return nil, b.blocks[sort.Search(len(b.blocks), func(i int) bool { return b.blocks[i].end() > seq })]
}

// observed is when a version in the buffer was observed.
func (b *buffer) observed(seq int64) time.Time {
	versions, sealed := b.from(seq)
	if sealed != nil {
		return time.Unix(0, sealed.times[seq-sealed.first])
	}
	return versions[0].Observed
}
