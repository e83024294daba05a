package correlator

import (
	"hash/maphash"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// seeds hash identities to keys of a fixed size. They are secret and differ in every process, so nobody
// can choose identities that collide. A collision of subjects, groups or messages, whose keys have 63
// bits and more, changes when something is written or combined. So does one of the 32 bits by which a
// subject knows its series: of 64 series, two have the same ones in one of two million subjects. While
// both go on and tokens are scarce, the count of one may not be written. Only the whole keys of series,
// of 128 bits, decide what is counted together.
type seeds struct {
	a, b   maphash.Seed
	within uint64 // an odd factor; see seriesKey
}

func newSeeds() seeds {
	s := seeds{a: maphash.MakeSeed(), b: maphash.MakeSeed()}
	s.within = maphash.String(s.a, "") | 1
	return s
}

// keys are those of the subject, the group within it, and the series of an occurrence.
type keys struct {
	subject, group uint64
	series         occurrence.Key
}

func (s *seeds) keys(e *identity.Encoding) keys {
	k := keys{subject: maphash.Bytes(s.a, e.Subject()), group: maphash.Bytes(s.a, e.Group())}
	k.series = s.series(&k, e)
	return k
}

// seriesKey returns the hash of the key of a series by which its subject knows it. The key of a group
// of Options.GroupKey is no secret, so its hash must be.
func (s *seeds) seriesKey(k occurrence.Key) uint32 { return uint32(k.B * s.within >> 32) }

// series returns the key of the encoded series. k has the keys of its subject and group.
func (s *seeds) series(k *keys, e *identity.Encoding) occurrence.Key {
	return occurrence.Key{
		A: k.similar()*odd + maphash.Bytes(s.a, e.Member()),
		B: maphash.Bytes(s.b, e.Bytes()),
	}
}

// similar returns the key of the group among those of all subjects. Options.SubjectKey may
// have put several of them together.
func (k *keys) similar() uint64 { return k.subject*odd + k.group }

// odd is an odd factor that makes a sum of hashes depend on their order.
const odd = 0x9e3779b97f4a7c15

// named returns the key of a name that a function of Options returned.
func (s *seeds) named(name string) uint64 { return maphash.String(s.a, name) }

// ofUser returns a key for what each user has separately. The user is not a part of the
// key of a series, which users share.
func (s *seeds) ofUser(key uint64, user string) uint64 {
	if user == "" {
		return key
	}
	return key*odd + maphash.String(s.a, user)
}

// ofBudget returns a key for what each budget has separately.
func (s *seeds) ofBudget(key uint64, b *occurrence.Budget) uint64 {
	return key*odd + maphash.Comparable(s.b, *b)
}

// tenant returns the key of the tenant that an occurrence belongs to.
func (s *seeds) tenant(o *occurrence.Occurrence) uint64 {
	return maphash.String(s.a, occurrence.TenantOf(o.User))
}
