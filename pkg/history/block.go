package history

import (
	"hash/maphash"
	"slices"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
)

// The frames of a block.
const (
	objectsFrame = iota
	rowsFrame
	textsFrame
	frames
)

// block is a sealed part of a run: columns of versions that are sorted by namespace, object, Event and
// time. It does not change, so it is read without a lock.
type block struct {
	epoch int64
	// first and end are the sequence numbers of the run, of which other blocks may have a part.
	first, end int64
	// firstRV and lastRV are the lowest and the highest resourceVersion.
	firstRV, lastRV uint64
	// from and until are when the first and the last of the versions were observed, in microseconds
	// since 1970.
	from, until int64
	// firstTime and lastTime are the first and the last time of their Events.
	firstTime, lastTime int64
	rows                int
	// size is that of the versions when they are decoded, in bytes of memory.
	size int64
	// owner is the namespace that all of them are of, or empty if it is of several.
	owner string
	// firstNamespace and lastNamespace are the lowest and the highest namespace.
	firstNamespace, lastNamespace string
	// facets are hashes of the namespaces, reasons, types and reporters, sorted; nil if there are more
	// than maxFacets.
	facets []uint32
	// names are hashes of the names of objects, uids those of objects, and objectEvents the index of
	// the first Event of each, and of the end.
	names        []uint32
	uids         []uidKey
	objectEvents []uint16
	// events are the uids of Events, and eventRows the index of the first row of each, and of the end.
	events    []uidKey
	eventRows []uint16
	// data has the frames, which end at ends.
	data []byte
	ends [frames]uint32
}

const (
	// maxFacets bounds the index of a block, whatever somebody invents.
	maxFacets = 256
	// blockBytes is the size of a block without its slices and strings, and of the pointer to it.
	blockBytes = int64(unsafe.Sizeof(block{})) + 8
)

// bytes is its size in memory.
func (b *block) bytes() int64 {
	return blockBytes + int64(len(b.owner)+len(b.firstNamespace)+len(b.lastNamespace)) + 4*int64(cap(b.facets)+cap(b.names)) +
		16*int64(cap(b.uids)+cap(b.events)) + 2*int64(cap(b.objectEvents)+cap(b.eventRows)) + int64(cap(b.data))
}

// frame returns a compressed frame.
func (b *block) frame(of int) []byte {
	begin := uint32(0)
	if of > 0 {
		begin = b.ends[of-1]
	}
	return b.data[begin:b.ends[of]]
}

// eventsOf returns the indexes of the Events of an object.
func (b *block) eventsOf(object int) (begin, end int) {
	return int(b.objectEvents[object]), int(b.objectEvents[object+1])
}

// rowsOf returns the indexes of the rows of an Event.
func (b *block) rowsOf(event int) (begin, end int) {
	return int(b.eventRows[event]), int(b.eventRows[event+1])
}

// indexOf returns the object and the Event of a row.
func (b *block) indexOf(row int) (object, event int) {
	event = indexBelow(b.eventRows, row)
	return indexBelow(b.objectEvents, event), event
}

// indexBelow returns the index of the last beginning that is not above n.
func indexBelow(begins []uint16, n int) int {
	i, found := slices.BinarySearch(begins, uint16(n))
	if found {
		return i
	}
	return i - 1
}

// mayHave is false if no version in the block has a value.
func (b *block) mayHave(facet uint32) bool {
	if b.facets == nil {
		return true
	}
	_, ok := slices.BinarySearch(b.facets, facet)
	return ok
}

// What a facet is of.
const (
	facetNamespace = iota
	facetReason
	facetType
	facetReporter
	nameOfObject
	facetKinds
)

// codec encodes and decodes blocks. It is safe for concurrent use, starts no goroutine, and needs no
// stop.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
	// seeds are random, so nobody can make hashes equal.
	seeds   [facetKinds]maphash.Seed
	sizes   sizes
	decoded prometheus.Counter // blocks
}

func newCodec(s sizes, decoded prometheus.Counter) (*codec, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedDefault), zstd.WithEncoderConcurrency(1),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(1<<20), zstd.WithEncoderCRC(false), zstd.WithSingleSegment(true))
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(maxDecoding), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(64<<20))
	if err != nil {
		return nil, err
	}
	c := &codec{encoder: encoder, decoder: decoder, sizes: s, decoded: decoded}
	for i := range c.seeds {
		c.seeds[i] = maphash.MakeSeed()
	}
	return c, nil
}

// hash is a facet, or that of the name of an object.
func (c *codec) hash(of int, s string) uint32 { return uint32(maphash.String(c.seeds[of], s)) }
