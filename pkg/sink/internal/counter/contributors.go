package counter

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/eventd/eventd/internal/identity"
)

const (
	// Annotation is the name of the annotation with the state of the counter. docs/counting.md
	// specifies its format.
	Annotation = identity.AnnotationPrefix + "shares"

	annotationVersion = "v1"
	creatorPart       = "c"
	sinksPart         = "s"
	clientsPart       = "n"
	pushedOutPart     = "o"

	// maxSinks, maxClients and maxPushedOut bound the annotation: at most 38 bytes an entry of
	// the first two and 17 of the last, so under 3,072 bytes in all, and 20 bytes for a usual
	// one.
	maxSinks     = 8
	maxClients   = 64
	maxPushedOut = 16
	// maxUnknown bounds the parts of later releases, and maxAnnotation the whole annotation:
	// whoever has written it, it is kept in memory and written again with every change.
	maxUnknown    = 1 << 10
	maxAnnotation = 4 << 10

	contributorLength = 16

	// maxNameLength is the length of a DNS subdomain.
	maxNameLength = 253
)

// contributorEncoding writes 10 bytes as 16 lower-case characters.
var contributorEncoding = base32.NewEncoding("0123456789abcdefghijklmnopqrstuv").WithPadding(base32.NoPadding)

// Contributor is the name of a sink instance or a client in the annotation. The zero value is
// nobody.
type Contributor [contributorLength]byte

func (c Contributor) String() string { return string(c[:]) }

// newContributor encodes 10 bytes.
func newContributor(b [10]byte) (c Contributor) {
	contributorEncoding.Encode(c[:], b[:])
	return c
}

// NewInstance returns a new name for a sink instance: the time in units of 256 ms, and 40 random
// bits. So later ones are greater, unless clocks differ; see pushOut.
func NewInstance() Contributor {
	var b [10]byte
	binary.BigEndian.PutUint64(b[:8], uint64(time.Now().UnixMilli()>>8)<<24)
	rand.Read(b[5:]) // never fails
	return newContributor(b)
}

// clientKey returns the contributor of a client by its posted name.
func clientKey(name string) Contributor {
	var buffer [maxNameLength]byte // saves an allocation
	sum := sha256.Sum256(append(buffer[:0], name...))
	return newContributor([10]byte(sum[:]))
}

// contribution is the value of one contributor.
type contribution struct {
	contributor Contributor
	value       uint64
}

// contributors is the state of the counter in the annotation. Lists are ordered by last change,
// oldest first. The zero value is that of a new object.
type contributors struct {
	creator Contributor // the sink instance that created the object
	sinks   []contribution
	clients []contribution
	// pushedOut are the greatest of those that others have pushed out of sinks, in order. It is nil
	// while sinks is not full, and also if a release has filled it that does not record them.
	pushedOut []Contributor
	unknown   []string // parts of a later release, kept as they are
}

// parseContributors reads an annotation. An error means that the object is foreign.
func parseContributors(annotation string) (contributors, error) {
	if len(annotation) > maxAnnotation {
		return contributors{}, fmt.Errorf("the annotation has %d bytes, more than %d", len(annotation), maxAnnotation)
	}
	var s contributors
	unknown := 0
	version, rest, _ := strings.Cut(annotation, ";")
	if version != annotationVersion {
		return contributors{}, fmt.Errorf("version %q is not %s", version, annotationVersion)
	}
	seen := make(map[string]bool)
	for part := range strings.SplitSeq(rest, ";") {
		if part == "" {
			continue
		}
		name, list, ok := strings.Cut(part, "=")
		if !ok || seen[name] {
			return contributors{}, fmt.Errorf("part %q is malformed or repeated", part)
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
		case pushedOutPart:
			s.pushedOut, err = parsePushedOut(list)
		default:
			s.unknown = append(s.unknown, strings.Clone(part))
			if unknown += 1 + len(part); unknown > maxUnknown {
				err = fmt.Errorf("unknown parts have more than %d bytes", maxUnknown)
			}
		}
		if err != nil {
			return contributors{}, fmt.Errorf("part %q: %w", name, err)
		}
	}
	return s, nil
}

// parseList reads a list, of which the last entries are kept, up to a limit.
func parseList(list string, limit int) ([]contribution, error) {
	var out []contribution
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
		out = append(out, contribution{c, value})
	}
	if n := len(out) - limit; n > 0 {
		out = slices.Clone(out[n:])
	}
	return out, nil
}

// parsePushedOut reads the list of those that were pushed out, of which the greatest are kept.
func parsePushedOut(list string) ([]Contributor, error) {
	out := []Contributor{}
	if list == "" {
		return out, nil
	}
	for name := range strings.SplitSeq(list, ",") {
		c, err := parseContributor(name)
		if err != nil {
			return nil, fmt.Errorf("entry %q is malformed", name)
		}
		out = append(out, c)
	}
	return greatest(out), nil
}

func parseContributor(s string) (Contributor, error) {
	if len(s) != contributorLength {
		return Contributor{}, errors.New("not a contributor")
	}
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'v') {
			return Contributor{}, errors.New("not a contributor")
		}
	}
	return Contributor([]byte(s)), nil
}

// String writes the annotation.
func (s contributors) String() string {
	b := append(make([]byte, 0, 256), annotationVersion...)
	if s.creator != (Contributor{}) {
		b = append(b, ';')
		b = append(b, creatorPart...)
		b = append(b, '=')
		b = append(b, s.creator[:]...)
	}
	b = appendList(b, sinksPart, s.sinks)
	b = appendList(b, clientsPart, s.clients)
	b = appendPushedOut(b, s.pushedOut)
	for _, part := range s.unknown {
		b = append(b, ';')
		b = append(b, part...)
	}
	return string(b)
}

func appendList(b []byte, name string, list []contribution) []byte {
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

func appendPushedOut(b []byte, list []Contributor) []byte {
	if list == nil {
		return b
	}
	b = append(b, ";"+pushedOutPart+"="...)
	for i, c := range list {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, c[:]...)
	}
	return b
}

// write returns the state after a write of a sink instance up to a sequence.
func (s contributors) write(by Contributor, upTo uint64) contributors {
	before := s.sinks
	s.sinks = set(before, by, upTo, maxSinks)
	switch full := len(before) == maxSinks; {
	case full && index(before, by) < 0:
		s.pushedOut = pushOut(s.pushedOut, before[0].contributor)
	case !full && len(s.sinks) == maxSinks && s.pushedOut == nil:
		s.pushedOut = []Contributor{} // nobody has been pushed out before
	}
	return s
}

// pushOut returns a list with one more contributor, without the smallest one if there are too
// many. If others may be missing, the list is full of the greatest one that there can be: then
// everybody may have been pushed out.
func pushOut(list []Contributor, c Contributor) []Contributor {
	switch {
	case list == nil:
		return slices.Repeat([]Contributor{newContributor([10]byte(bytes.Repeat([]byte{0xff}, 10)))}, maxPushedOut)
	case slices.Contains(list, c):
		return list
	}
	return greatest(append(slices.Clone(list), c))
}

// greatest sorts a list, and returns a copy of its last elements.
func greatest(list []Contributor) []Contributor {
	slices.SortFunc(list, Contributor.compare)
	return append([]Contributor{}, list[max(0, len(list)-maxPushedOut):]...)
}

func (c Contributor) compare(with Contributor) int { return bytes.Compare(c[:], with[:]) }

// mayHavePushedOut reports whether a contributor that is not among the sinks may have been
// before: those that are missing in a full list are smaller than the others.
func (s *contributors) mayHavePushedOut(c Contributor) bool {
	if len(s.sinks) < maxSinks {
		return false
	}
	missing := len(s.pushedOut) == maxPushedOut && c.compare(s.pushedOut[0]) < 0
	return s.pushedOut == nil || missing || slices.Contains(s.pushedOut, c)
}

func find(list []contribution, c Contributor) (uint64, bool) {
	if i := index(list, c); i >= 0 {
		return list[i].value, true
	}
	return 0, false
}

func index(list []contribution, c Contributor) int {
	for i := range list {
		if list[i].contributor == c {
			return i
		}
	}
	return -1
}

// set returns a new list with a value for a contributor, which is the last to have changed. It
// has at most limit elements.
func set(list []contribution, c Contributor, value uint64, limit int) []contribution {
	list = append(make([]contribution, 0, len(list)+1), list...)
	return put(list, index(list, c), contribution{c, value}, limit)
}

// raise changes a list so that a contributor is the last to have changed and has at least a
// value. It also returns the value before.
func raise(list []contribution, c Contributor, value uint64, limit int) (_ []contribution, before uint64) {
	i := index(list, c)
	if i >= 0 {
		before = list[i].value
	}
	return put(list, i, contribution{c, max(before, value)}, limit), before
}

// put appends a contribution, in place of the one at i if i is not negative.
func put(list []contribution, i int, s contribution, limit int) []contribution {
	if i >= 0 {
		list = slices.Delete(list, i, i+1)
	}
	if n := len(list) + 1 - limit; n > 0 {
		list = slices.Delete(list, 0, n)
	}
	return append(list, s)
}
