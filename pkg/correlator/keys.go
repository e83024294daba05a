package correlator

import (
	"hash/maphash"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// Keys are hashes of identities under seeds of this process that nobody else
// knows, so that what is remembered takes no more room for long names and
// messages than for short ones. Two subjects, groups or messages with one key, of
// 64 bits, share a budget, or are combined sooner or later than they should. Counts rest on the keys
// of series alone: two series with one key, of 128 bits, would be counted as one,
// which is not to be expected in the life of a cluster.
type seeds struct{ a, b maphash.Seed }

func newSeeds() seeds { return seeds{maphash.MakeSeed(), maphash.MakeSeed()} }

// keys of the subject, the group within it, and the series that are encoded.
type keys struct {
	subject, group uint64
	series         occurrence.Key
}

func (s *seeds) keys(e *identity.Encoding) keys {
	k := keys{subject: maphash.Bytes(s.a, e.Subject()), group: maphash.Bytes(s.a, e.Group())}
	k.series = s.series(&k, e)
	return k
}

// series is the key of what is encoded, a part of which is known already.
func (s *seeds) series(k *keys, e *identity.Encoding) occurrence.Key {
	return occurrence.Key{
		A: k.similar()*odd + maphash.Bytes(s.a, e.Member()),
		B: maphash.Bytes(s.b, e.Bytes()),
	}
}

// similar is the key of the group among those of all subjects: it is somebody
// else's function, perhaps, that says what a subject is.
func (k *keys) similar() uint64 { return k.subject*odd + k.group }

// odd makes a sum of hashes depend on their order.
const odd = 0x9e3779b97f4a7c15

// named is the key of the subject, or the member of a group, that somebody's own
// function has named.
func (s *seeds) named(name string) uint64 { return maphash.String(s.a, name) }

// ofUser is the key of what is kept for each user apart. It is no part of the key
// of a series, which all who report it share. Recorders in this process have no
// user.
func (s *seeds) ofUser(key uint64, user string) uint64 {
	if user == "" {
		return key
	}
	return key*odd + maphash.String(s.a, user)
}

// tenant is the key of the tenant that an occurrence is remembered for.
func (s *seeds) tenant(o *occurrence.Occurrence) uint64 {
	return maphash.String(s.a, occurrence.TenantOf(o.User))
}
