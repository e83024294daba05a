package history

import (
	"encoding/binary"
	"errors"
	"hash/maphash"
	"slices"
	"sync"
	"time"
	"unsafe"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/eventsize"
	"github.com/eventd/eventd/pkg/observer"
)

// block is a sealed part of a run: versions that are sorted by namespace, object, Event and time, in protobuf,
// compressed. It does not change, so it is read without a lock.
type block struct {
	epoch int64
	// first and end are the sequence numbers of the run, of which other blocks may have a part.
	first, end int64
	// lastRV is the highest resourceVersion.
	lastRV uint64
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
	// facets are hashes of what the versions have, sorted.
	facets []uint32
	data   []byte
}

// blockBytes is the size of a block without its slices and strings, and of the pointer to it.
const blockBytes = int64(unsafe.Sizeof(block{})) + 8

// bytes is its size in memory.
func (b *block) bytes() int64 {
	return blockBytes + int64(len(b.owner)+len(b.firstNamespace)+len(b.lastNamespace)+cap(b.data)) + 4*int64(cap(b.facets))
}

// mayHave is false if no version in the block has a value.
func (b *block) mayHave(facet uint32) bool {
	_, ok := slices.BinarySearch(b.facets, facet)
	return ok
}

// What a facet is of.
const (
	facetNamespace = iota
	facetReason
	facetType
	facetReporter
	facetObject
	facetObjectUID
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

// hash is a facet.
func (c *codec) hash(of int, s string) uint32 { return uint32(maphash.String(c.seeds[of], s)) }

var errBlock = errors.New("a block of the history cannot be decoded")

// appendRow encodes a version: its place in the run, what a search asks first, and its Event. The Event is one of newRow,
// which can be encoded.
func (c *codec) appendRow(plain []byte, r *row, b *block) []byte {
	place := uint64(r.seq-b.first) << 1
	if r.listed {
		place |= 1
	}
	plain = binary.AppendUvarint(plain, place)
	plain = binary.AppendVarint(plain, r.Observed.UnixMicro()-b.from)
	plain = binary.LittleEndian.AppendUint32(plain, c.hash(facetObject, r.Event.InvolvedObject.Name))
	size := r.Event.Size()
	plain = binary.AppendUvarint(plain, uint64(size))
	at := len(plain)
	plain = append(plain, make([]byte, size)...)
	_, _ = r.Event.MarshalToSizedBuffer(plain[at:])
	return plain
}

// plains are buffers that are used again: what is decoded has copies.
var plains = sync.Pool{New: func() any { return new([]byte) }}

// maxPooled bounds the memory of such a buffer, in bytes.
const maxPooled = 1 << 20

// decode calls a function for each version of a block whose sequence number, and hash of the name of its object, are
// wanted.
func (c *codec) decode(b *block, wanted func(seq int64, object uint32) bool, do func(*row)) error {
	c.decoded.Inc()
	buffer := plains.Get().(*[]byte)
	plain, err := c.decoder.DecodeAll(b.data, (*buffer)[:0])
	if err != nil {
		return err
	}
	if *buffer = plain; cap(plain) <= maxPooled {
		defer plains.Put(buffer)
	}
	for range b.rows {
		place, n := binary.Uvarint(plain)
		observed, m := binary.Varint(plain[max(n, 0):])
		if n <= 0 || m <= 0 || len(plain) < n+m+4 || place>>1 >= uint64(b.end-b.first) {
			return errBlock
		}
		object := binary.LittleEndian.Uint32(plain[n+m:])
		plain = plain[n+m+4:]
		size, n := binary.Uvarint(plain)
		if n <= 0 || size > uint64(len(plain)-n) {
			return errBlock
		}
		encoded := plain[n : n+int(size)]
		plain = plain[n+int(size):]
		seq := b.first + int64(place>>1)
		if !wanted(seq, object) {
			continue
		}
		event := &corev1.Event{}
		if err := event.Unmarshal(encoded); err != nil {
			return err
		}
		rv, err := parseRV(event.ResourceVersion)
		if err != nil {
			return err
		}
		do(&row{
			Version: observer.Version{Event: event, Observed: time.UnixMicro(b.from + observed)},
			seq:     seq, epoch: b.epoch, rv: rv, listed: place&1 == 1, bytes: eventsize.Of(event) + rowBytes,
		})
	}
	if len(plain) > 0 {
		return errBlock
	}
	return nil
}
