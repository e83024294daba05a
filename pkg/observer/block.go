package observer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/klauspost/compress/zstd"
	corev1 "k8s.io/api/core/v1"
)

// block is a sealed run of versions: protobuf, compressed. It does not change, so it is decoded
// without a lock.
type block struct {
	first int64 // sequence number of its first version
	// times are when the versions were observed, in nanoseconds since 1970.
	times []int64
	// last is the resourceVersion of its last version.
	last string
	data []byte
}

// blockOverhead is the size of a block without its data and times, in bytes.
const blockOverhead = 160

var errTruncated = errors.New("truncated")

// codec encodes and decodes blocks. It is safe for concurrent use, starts no goroutine, and needs no
// stop.
type codec struct {
	encoder *zstd.Encoder
	decoder *zstd.Decoder
}

func newCodec() (*codec, error) {
	encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true))
	if err != nil {
		return nil, err
	}
	decoder, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(2), zstd.WithDecoderLowmem(true))
	return &codec{encoder, decoder}, err
}

// encode seals versions, of which there is at least one.
func (c *codec) encode(first int64, versions []Version) (*block, error) {
	b := &block{first: first, times: make([]int64, len(versions)), last: versions[len(versions)-1].Event.ResourceVersion}
	var plain []byte
	for i, v := range versions {
		size := v.Event.Size()
		plain = binary.AppendUvarint(plain, uint64(size))
		at := len(plain)
		plain = append(plain, make([]byte, size)...)
		// A Size that MarshalToSizedBuffer does not fill would leave zeros, which do not decode.
		if n, err := v.Event.MarshalToSizedBuffer(plain[at:]); err != nil || n != size {
			return nil, fmt.Errorf("encoding %s: %d of %d bytes: %w", v.ID(), n, size, err)
		}
		b.times[i] = v.Observed.UnixNano()
	}
	packed := c.encoder.EncodeAll(plain, nil)
	b.data = append([]byte(nil), packed...) // packed has much spare capacity
	return b, nil
}

// decode returns the versions of a block.
func (c *codec) decode(b *block) ([]Version, error) {
	plain, err := c.decoder.DecodeAll(b.data, nil)
	if err != nil {
		return nil, err
	}
	versions := make([]Version, 0, len(b.times))
	for _, at := range b.times {
		size, n := binary.Uvarint(plain)
		if n <= 0 || size > uint64(len(plain)-n) {
			return nil, errTruncated
		}
		event := &corev1.Event{}
		if err := event.Unmarshal(plain[n : n+int(size)]); err != nil {
			return nil, err
		}
		plain = plain[n+int(size):]
		versions = append(versions, Version{Event: event, Observed: time.Unix(0, at)})
	}
	return versions, nil
}

// end is the sequence number after its last version.
func (b *block) end() int64 { return b.first + int64(len(b.times)) }

// bytes is its size in memory.
func (b *block) bytes() int64 {
	return int64(cap(b.data)) + 8*int64(cap(b.times)) + int64(len(b.last)) + blockOverhead
}
