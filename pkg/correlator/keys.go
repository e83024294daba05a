package correlator

import (
	"encoding/binary"
	"hash/maphash"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// Keys are hashes of identities under seeds of this process that nobody else
// knows, so that what is remembered takes no more room for long names and
// messages than for short ones. Two subjects or groups with one key, of 64 bits,
// share a budget or are combined sooner than they should. Counts rest on the keys
// of series alone: two series with one key, of 128 bits, would be counted as one,
// which is not to be expected in the life of a cluster.
type seeds struct{ a, b maphash.Seed }

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

func (s *seeds) short(b []byte) uint64 { return maphash.Bytes(s.a, b) }

// series is the key of the series that is encoded.
func (s *seeds) series(e *identity.Encoding) occurrence.Key {
	subject, rest := e.Subject(), e.WithinSubject()
	return occurrence.Key{
		A: s.short(rest) + s.short(subject)*odd,
		B: maphash.Bytes(s.b, rest) + maphash.Bytes(s.b, subject)*odd,
	}
}

// odd makes a sum of hashes depend on their order.
const odd = 0x9e3779b97f4a7c15

// member is the key of what somebody's own function has named.
func (s *seeds) member(name string) occurrence.Key {
	return occurrence.Key{A: maphash.String(s.a, name), B: maphash.String(s.b, name)}
}

// ofDigest is the key of a series whose digest is known beforehand.
func ofDigest(d *identity.Digest) occurrence.Key {
	return occurrence.Key{A: binary.LittleEndian.Uint64(d[:]), B: binary.LittleEndian.Uint64(d[8:])}
}
