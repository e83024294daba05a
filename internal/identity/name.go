package identity

import (
	"encoding/binary"
	"encoding/hex"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// hashBytes is the number of bytes of the digest in a name. The annotation has
	// the whole digest.
	hashBytes = 8
	// MaxSuffix is the highest suffix of a name.
	MaxSuffix = 7
	// maxObjectName leaves space for the dot, the hash, and "-7".
	maxObjectName = validation.DNS1123SubdomainMaxLength - 1 - 2*hashBytes - 2
	// nonceBytes is the number of random bytes in a unique name, for which
	// maxUniqueObjectName leaves space.
	nonceBytes          = 8
	maxUniqueObjectName = validation.DNS1123SubdomainMaxLength - 1 - 2*hashBytes - 1 - 2*nonceBytes
)

// Name returns the name of the Event with digest d: a valid DNS subdomain that begins with
// the name of the involved object, which may be any string. The suffix is the number of
// objects of others that were found under the names before, from 0 to MaxSuffix.
func Name(objectName string, d Digest, suffix int) string {
	b := appendHash(objectName, d, maxObjectName)
	if suffix > 0 {
		b = append(b, '-')
		b = strconv.AppendInt(b, int64(suffix), 10)
	}
	return string(b)
}

// UniqueName is Name with a nonce in place of the suffix. A random nonce makes the name
// unpredictable. It differs from every name that Name returns.
func UniqueName(objectName string, d Digest, nonce uint64) string {
	b := append(appendHash(objectName, d, maxUniqueObjectName), '-')
	b = hex.AppendEncode(b, binary.BigEndian.AppendUint64(nil, nonce))
	return string(b)
}

// appendHash returns the common prefix of all names of a series, with at most limit bytes of
// the name of the object.
func appendHash(objectName string, d Digest, limit int) []byte {
	b := make([]byte, 0, validation.DNS1123SubdomainMaxLength)
	b = append(appendSubdomain(b, objectName, limit), '.')
	return hex.AppendEncode(b, d[:hashBytes])
}

// appendSubdomain appends name, cut to limit bytes, as a DNS subdomain: labels of
// [a-z0-9-] that begin and end with a letter or digit.
func appendSubdomain(b []byte, name string, limit int) []byte {
	start := len(b)
	for i := 0; i < len(name) && i < limit; i++ {
		c := name[i]
		if 'A' <= c && c <= 'Z' {
			c += 'a' - 'A'
		}
		labelStart := len(b) == start || b[len(b)-1] == '.'
		switch {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9':
			b = append(b, c)
		case c == '.':
			if b = trimDashes(b, start); len(b) > start && b[len(b)-1] != '.' {
				b = append(b, '.')
			}
		case !labelStart:
			b = append(b, '-')
		}
	}
	b = trimDashes(b, start)
	if len(b) > start && b[len(b)-1] == '.' {
		b = b[:len(b)-1]
	}
	if len(b) == start {
		b = append(b, "unnamed"...)
	}
	return b
}

func trimDashes(b []byte, start int) []byte {
	for len(b) > start && b[len(b)-1] == '-' {
		b = b[:len(b)-1]
	}
	return b
}
