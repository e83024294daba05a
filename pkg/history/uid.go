package history

import (
	"crypto/sha256"
	"encoding/hex"

	"k8s.io/apimachinery/pkg/types"
)

// uidKey identifies a uid in 16 bytes: those of a UUID, or a hash of anything else. The empty uid has
// the zero key.
type uidKey [16]byte

// dashes are where a UUID has a dash.
var dashes = [...]int{8, 13, 18, 23}

// keyOf returns the key of a uid. exact: text returns the same uid.
func keyOf(uid types.UID) (key uidKey, exact bool) {
	if uid == "" {
		return key, true
	}
	if parseUUID(string(uid), &key) && key != (uidKey{}) {
		return key, true
	}
	hash := sha256.Sum256([]byte(uid))
	copy(key[:], hash[:])
	return key, false
}

// parseUUID parses the canonical form only: another one would come back changed.
func parseUUID(s string, key *uidKey) bool {
	if len(s) != 36 {
		return false
	}
	var digits [32]byte
	n := 0
	for i := range len(s) {
		c := s[i]
		if i == dashes[0] || i == dashes[1] || i == dashes[2] || i == dashes[3] {
			if c != '-' {
				return false
			}
			continue
		}
		if 'A' <= c && c <= 'F' {
			return false
		}
		digits[n] = c
		n++
	}
	_, err := hex.Decode(key[:], digits[:])
	return err == nil
}

func (k uidKey) text() string {
	if k == (uidKey{}) {
		return ""
	}
	var b [36]byte
	hex.Encode(b[0:8], k[0:4])
	hex.Encode(b[9:13], k[4:6])
	hex.Encode(b[14:18], k[6:8])
	hex.Encode(b[19:23], k[8:10])
	hex.Encode(b[24:36], k[10:16])
	for _, at := range dashes {
		b[at] = '-'
	}
	return string(b[:])
}
