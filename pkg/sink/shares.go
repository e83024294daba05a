package sink

import (
	"crypto/sha256"
	"encoding/base32"
	"errors"
	"fmt"
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

	contributorLength = 16
)

// contributorEncoding writes 10 bytes as 16 characters.
var contributorEncoding = base32.HexEncoding.WithPadding(base32.NoPadding)

// clientKey is what stands for a client's posted name in the annotation.
func clientKey(name string) string {
	sum := sha256.Sum256([]byte(name))
	return strings.ToLower(contributorEncoding.EncodeToString(sum[:10]))
}

// share is one contributor's entry.
type share struct {
	contributor string
	value       uint64
}

// shares is the content of the annotation. Lists are ordered by last change,
// oldest first. The zero value is that of a new object.
type shares struct {
	creator string // the sink instance that created the object
	sinks   []share
	clients []share
	unknown []string // parts of a later release, kept as they are
}

// parseShares reads an annotation. An error means that the object is foreign.
func parseShares(annotation string) (shares, error) {
	var s shares
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
			if s.creator = list; !validContributor(list) {
				err = errors.New("not a contributor")
			}
		case sinksPart:
			s.sinks, err = parseList(list)
		case clientsPart:
			s.clients, err = parseList(list)
		default:
			s.unknown = append(s.unknown, part)
		}
		if err != nil {
			return shares{}, fmt.Errorf("part %q: %w", name, err)
		}
	}
	return s, nil
}

func parseList(list string) ([]share, error) {
	var out []share
	for entry := range strings.SplitSeq(list, ",") {
		contributor, number, ok := strings.Cut(entry, ":")
		if !ok || !validContributor(contributor) {
			return nil, fmt.Errorf("entry %q is malformed", entry)
		}
		value, err := strconv.ParseUint(number, 10, 64)
		if err != nil || strconv.FormatUint(value, 10) != number {
			return nil, fmt.Errorf("entry %q has no plain number", entry)
		}
		if _, ok := find(out, contributor); ok {
			return nil, errors.New("a contributor is there twice")
		}
		out = append(out, share{contributor, value})
	}
	return out, nil
}

func validContributor(s string) bool {
	if len(s) != contributorLength {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !('0' <= c && c <= '9' || 'a' <= c && c <= 'v') {
			return false
		}
	}
	return true
}

// String writes the annotation.
func (s shares) String() string {
	b := append(make([]byte, 0, 256), sharesVersion...)
	if s.creator != "" {
		b = append(b, ';')
		b = append(b, creatorPart...)
		b = append(b, '=')
		b = append(b, s.creator...)
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
		b = append(b, e.contributor...)
		b = append(b, ':')
		b = strconv.AppendUint(b, e.value, 10)
	}
	return b
}

func find(list []share, contributor string) (uint64, bool) {
	for _, e := range list {
		if e.contributor == contributor {
			return e.value, true
		}
	}
	return 0, false
}

// set returns a new list in which contributor is the last to have changed, and
// which has at most limit entries.
func set(list []share, contributor string, value uint64, limit int) []share {
	out := make([]share, 0, len(list)+1)
	for _, e := range list {
		if e.contributor != contributor {
			out = append(out, e)
		}
	}
	out = append(out, share{contributor, value})
	return out[max(0, len(out)-limit):]
}
