package sink

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/eventd/eventd/internal/identity"
)

const (
	// sharesAnnotation holds what each contributor has in the count. Its format
	// is laid down in docs/counting.md.
	sharesAnnotation = identity.AnnotationPrefix + "shares"

	sharesVersion = "v1"
	creatorPart   = "c"
	sinksPart     = "s"
	clientsPart   = "n"

	// maxSinks and maxClients bound the annotation: at most 38 bytes an entry,
	// so under 2,800 bytes in all, and 20 bytes for a usual one.
	maxSinks   = 8
	maxClients = 64
	// maxUnknown bounds the parts of later releases, and maxShares the whole
	// annotation, whoever has written it: it is kept in memory, and written again
	// with every change.
	maxUnknown = 1 << 10
	maxShares  = 4 << 10

	contributorLength = 16

	// maxNameLength is that of a DNS subdomain.
	maxNameLength = 253
)

// contributorEncoding writes 10 bytes as 16 lower-case characters.
var contributorEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// contributor is how a sink instance or a client is called in the annotation.
// The zero value is nobody.
type contributor [contributorLength]byte

func (c contributor) String() string { return string(c[:]) }

// newContributor returns the contributor that 10 bytes stand for.
func newContributor(b [10]byte) (c contributor) {
	contributorEncoding.Encode(c[:], b[:])
	return c
}

// clientKey is what stands for a client's posted name in the annotation.
func clientKey(name string) contributor {
	var room [maxNameLength]byte // spares an allocation
	sum := sha256.Sum256(append(room[:0], name...))
	return newContributor([10]byte(sum[:]))
}

// share is one contributor's entry.
type share struct {
	contributor contributor
	value       uint64
}

// shares is the content of the annotation. Lists are ordered by last change,
// oldest first. The zero value is that of a new object.
type shares struct {
	creator contributor // the sink instance that created the object
	sinks   []share
	clients []share
	unknown []string // parts of a later release, kept as they are
}

// parseShares reads an annotation. An error means that the object is foreign.
func parseShares(annotation string) (shares, error) {
	if len(annotation) > maxShares {
		return shares{}, fmt.Errorf("the annotation has %d bytes, more than %d", len(annotation), maxShares)
	}
	var s shares
	unknown := 0
	version, rest, _ := strings.Cut(annotation, ";")
	if version != sharesVersion {
		return shares{}, fmt.Errorf("version %q is not %s", version, sharesVersion)
	}
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(rest, ";") {
		if part == "" {
			continue
		}
		name, list, ok := strings.Cut(part, "=")
		if !ok || seen[name] {
			return shares{}, fmt.Errorf("part %q is malformed or repeated", part)
		}
		seen[name] = true
		var err error
		switch name {
		case creatorPart:
			s.creator, err = parseContributor(list)
		case sinksPart:
			s.sinks, err = parseList(list, maxSinks)
		case clientsPart:
			s.clients, err = parseList(list, maxClients)
		default:
			s.unknown = append(s.unknown, strings.Clone(part))
			if unknown += len(part); unknown > maxUnknown {
				err = fmt.Errorf("unknown parts have more than %d bytes", maxUnknown)
			}
		}
		if err != nil {
			return shares{}, fmt.Errorf("part %q: %w", name, err)
		}
	}
	return s, nil
}

// parseList reads a list, of which the last entries are kept, up to a limit.
func parseList(list string, limit int) ([]share, error) {
	var out []share
	for entry := range strings.SplitSeq(list, ",") {
		name, number, ok := strings.Cut(entry, ":")
		c, err := parseContributor(name)
		if !ok || err != nil {
			return nil, fmt.Errorf("entry %q is malformed", entry)
		}
		value, err := strconv.ParseUint(number, 10, 64)
		if err != nil || strconv.FormatUint(value, 10) != number {
			return nil, fmt.Errorf("entry %q has no plain number", entry)
		}
		if _, ok := find(out, c); ok {
			return nil, errors.New("a contributor is there twice")
		}
		out = append(out, share{c, value})
	}
	if n := len(out) - limit; n > 0 {
		out = slices.Clone(out[n:])
	}
	return out, nil
}

func parseContributor(s string) (contributor, error) {
	if len(s) != contributorLength {
		return contributor{}, errors.New("not a contributor")
	}
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'v') {
			return contributor{}, errors.New("not a contributor")
		}
	}
	return contributor([]byte(s)), nil
}

// String writes the annotation.
func (s shares) String() string {
	b := append(make([]byte, 0, 256), sharesVersion...)
	if s.creator != (contributor{}) {
		b = append(b, ';')
		b = append(b, creatorPart...)
		b = append(b, '=')
		b = append(b, s.creator[:]...)
	}
	b = appendList(b, sinksPart, s.sinks)
	b = appendList(b, clientsPart, s.clients)
	for _, part := range s.unknown {
		b = append(b, ';')
		b = append(b, part...)
	}
	return string(b)
}

func appendList(b []byte, name string, list []share) []byte {
	if len(list) == 0 {
		return b
	}
	b = append(b, ';')
	b = append(b, name...)
	b = append(b, '=')
	for i, e := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, e.contributor[:]...)
		b = append(b, ':')
		b = strconv.AppendUint(b, e.value, 10)
	}
	return b
}

func find(list []share, c contributor) (uint64, bool) {
	if i := index(list, c); i >= 0 {
		return list[i].value, true
	}
	return 0, false
}

func index(list []share, c contributor) int {
	for i := range list {
		if list[i].contributor == c {
			return i
		}
	}
	return -1
}

// set returns a new list in which the contributor is the last to have changed,
// and which has at most limit entries.
func set(list []share, c contributor, value uint64, limit int) []share {
	list = append(make([]share, 0, len(list)+1), list...)
	return put(list, index(list, c), share{c, value}, limit)
}

// raise makes of a list that may be changed one in which the contributor is the
// last to have changed and has at least the value. It also returns what the
// contributor had.
func raise(list []share, c contributor, value uint64, limit int) (_ []share, before uint64) {
	i := index(list, c)
	if i >= 0 {
		before = list[i].value
	}
	return put(list, i, share{c, max(before, value)}, limit), before
}

// put appends a share in place of the one at i, if i is not negative.
func put(list []share, i int, s share, limit int) []share {
	if i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if n := len(list) + 1 - limit; n > 0 {
		list = slices.Delete(list, 0, n)
	}
	return append(list, s)
}
