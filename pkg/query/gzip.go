package query

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"hash/crc32"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
)

const gzipEncoding = "gzip"

// gzipHeader is that of RFC 1952: deflate, without a name, a time or a system.
var gzipHeader = []byte{0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255}

// gzipStream makes a gzip stream of parts that were compressed apart: what many clients get is compressed once. Each
// part is some blocks of deflate, refers to nothing before it, and ends at a byte, so that its reader has all of it.
type gzipStream struct{ sum, size uint32 }

func (g *gzipStream) begin(out *bytes.Buffer) { out.Write(gzipHeader) }

// add adds a part as it is: what only one client gets is not worth the time.
func (g *gzipStream) add(out *bytes.Buffer, plain []byte) {
	if len(plain) == 0 {
		return
	}
	g.count(plain)
	for part := range slices.Chunk(plain, math.MaxUint16) {
		addStored(out, part)
	}
	addStored(out, nil) // has a reader return what it has, as the end of what Flush of compress/flate writes
}

// addStored adds a block that is not compressed, nor the last one (RFC 1951).
func addStored(out *bytes.Buffer, part []byte) {
	n := uint16(len(part))
	header := binary.LittleEndian.AppendUint16([]byte{0}, n)
	out.Write(binary.LittleEndian.AppendUint16(header, ^n))
	out.Write(part)
}

// end adds the last block, which is empty, and the checksum.
func (g *gzipStream) end(out *bytes.Buffer) {
	trailer := binary.LittleEndian.AppendUint32([]byte{3, 0}, g.sum)
	out.Write(binary.LittleEndian.AppendUint32(trailer, g.size))
}

// count has the end know of what add did not add: a part that was compressed by itself.
func (g *gzipStream) count(plain []byte) {
	g.sum = crc32.Update(g.sum, crc32.IEEETable, plain)
	g.size += uint32(len(plain)) // modulo 2^32, as in RFC 1952
}

// packer compresses parts of gzip streams. It is safe for concurrent use.
type packer struct {
	mu     sync.Mutex
	writer *flate.Writer // nil before it is needed: it takes a megabyte
	packed bytes.Buffer
}

func (p *packer) pack(plain []byte) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.packed.Reset()
	if p.writer == nil {
		var err error
		if p.writer, err = flate.NewWriter(&p.packed, flate.BestSpeed); err != nil {
			return nil, err
		}
	}
	p.writer.Reset(&p.packed)
	if _, err := p.writer.Write(plain); err != nil {
		return nil, err
	}
	err := p.writer.Flush()
	return bytes.Clone(p.packed.Bytes()), err
}

// acceptsGzip reports whether a client says that it does.
func acceptsGzip(header http.Header) bool {
	for _, value := range header["Accept-Encoding"] {
		for part := range strings.SplitSeq(value, ",") {
			name, weight, _ := strings.Cut(part, ";")
			if strings.EqualFold(strings.TrimSpace(name), gzipEncoding) {
				return weight == "" || strings.Trim(weight, " q=0.") != "" // a weight of 0 is no
			}
		}
	}
	return false
}
