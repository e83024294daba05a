package intake

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
)

// Fingerprint returns the SHA-256 of a certificate in DER form, in lower-case hex. The
// leader announces that of its serving certificate.
func Fingerprint(certificate *x509.Certificate) string {
	sum := sha256.Sum256(certificate.Raw)
	return hex.EncodeToString(sum[:])
}
