package intake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math/big"
	"slices"
	"strings"
	"time"
)

// Limits of what is parsed. A ServiceAccount token has about 1 KiB, its header 100
// bytes. A check of a signature takes about 0.1 ms at most: with keys of P-384 and P-521
// it would take up to 1 ms, so tokens that are signed with those do not verify.
const (
	maxTokenBytes       = 8 << 10
	maxTokenHeaderBytes = 1 << 10
	maxIssuerKeys       = 64
	minRSABits          = 2048
	maxRSABits          = 4096
)

// serviceAccountUser begins the user names of ServiceAccounts.
const serviceAccountUser = "system:serviceaccount:"

// errUnknownKey is that a token names a key that the issuer had not when its keys were
// read.
var errUnknownKey = errors.New("the token is signed with an unknown key")

// verificationKey is one of two public keys. A kube-apiserver uses each with one algorithm
// (kubernetes, pkg/serviceaccount/jwt.go).
type verificationKey struct {
	rsa   *rsa.PublicKey   // RS256
	ecdsa *ecdsa.PublicKey // ES256
}

// issuerKeys are the public keys of an issuer of tokens by their ids.
type issuerKeys struct {
	issuer string
	byID   map[string]verificationKey
}

// subject returns whom a JWT names: the user name of a ServiceAccount. An error is that
// the issuer has not signed it, or that it has expired. Nothing of its content is parsed
// before its signature is verified.
func (k *issuerKeys) subject(token string, now time.Time) (string, error) {
	if len(token) > maxTokenBytes || strings.ContainsAny(token, "\r\n") { // which base64 ignores
		return "", errors.New("the token is too long, or has several lines")
	}
	signed, signature64, ok := cutLast(token, ".")
	header64, payload64, found := strings.Cut(signed, ".")
	if !ok || !found || strings.Contains(payload64, ".") || len(header64) > maxTokenHeaderBytes {
		return "", errors.New("not a signed token")
	}
	var header struct {
		Algorithm string          `json:"alg"`
		KeyID     string          `json:"kid"`
		Critical  json.RawMessage `json:"crit"`
	}
	if err := decodePart(header64, &header); err != nil {
		return "", err
	}
	key, ok := k.byID[header.KeyID]
	switch {
	case !ok:
		return "", errUnknownKey
	case header.Algorithm != key.algorithm() || header.Critical != nil:
		return "", errors.New("the token has an algorithm or extension that its issuer does not use")
	}
	signature, err := base64.RawURLEncoding.Strict().DecodeString(signature64)
	if err != nil || !key.verify(signed, signature) {
		return "", errors.New("the signature is not that of the key")
	}
	var claims struct {
		Issuer  string `json:"iss"`
		Subject string `json:"sub"`
		Expires int64  `json:"exp"`
	}
	if err := decodePart(payload64, &claims); err != nil {
		return "", err
	}
	namespace, name, ok := strings.Cut(strings.TrimPrefix(claims.Subject, serviceAccountUser), ":")
	switch {
	case claims.Issuer != k.issuer:
		return "", errors.New("the token is of another issuer")
	case claims.Expires <= now.Unix():
		return "", errors.New("the token has expired")
	case !ok || namespace == "" || name == "" || !strings.HasPrefix(claims.Subject, serviceAccountUser):
		return "", errors.New("the token is not that of a ServiceAccount")
	}
	return claims.Subject, nil
}

func cutLast(s, separator string) (before, after string, found bool) {
	i := strings.LastIndex(s, separator)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(separator):], true
}

func decodePart(part string, into any) error {
	data, err := base64.RawURLEncoding.Strict().DecodeString(part)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, into)
}

func (k verificationKey) algorithm() string {
	if k.rsa != nil {
		return "RS256"
	}
	return "ES256"
}

func (k verificationKey) verify(signed string, signature []byte) bool {
	digest := sha256.Sum256([]byte(signed))
	if k.rsa != nil {
		return rsa.VerifyPKCS1v15(k.rsa, crypto.SHA256, digest[:], signature) == nil
	}
	if len(signature) != 2*p256Bytes { // r and s, RFC 7518, 3.4
		return false
	}
	r, s := new(big.Int).SetBytes(signature[:p256Bytes]), new(big.Int).SetBytes(signature[p256Bytes:])
	return ecdsa.Verify(k.ecdsa, digest[:], r, s)
}

// p256Bytes is the length of a number of the curve P-256.
const p256Bytes = 32

// jsonWebKey is what is used of a public key (RFC 7517 and RFC 7518, 6).
type jsonWebKey struct {
	Type  string `json:"kty"`
	Use   string `json:"use"`
	ID    string `json:"kid"`
	N     string `json:"n"`
	E     string `json:"e"`
	Curve string `json:"crv"`
	X     string `json:"x"`
	Y     string `json:"y"`
}

// parseIssuerKeys reads a JWK set. Keys that cannot be used are left out.
func parseIssuerKeys(issuer string, data []byte) (*issuerKeys, error) {
	var set struct {
		Keys []jsonWebKey `json:"keys"`
	}
	if err := json.Unmarshal(data, &set); err != nil {
		return nil, err
	}
	if len(set.Keys) > maxIssuerKeys {
		return nil, errors.New("too many keys")
	}
	k := &issuerKeys{issuer: issuer, byID: make(map[string]verificationKey, len(set.Keys))}
	for _, published := range set.Keys {
		if key, ok := published.parse(); ok {
			k.byID[published.ID] = key
		}
	}
	if issuer == "" || len(k.byID) == 0 {
		return nil, errors.New("no issuer, or none of its keys can be used")
	}
	return k, nil
}

func (j *jsonWebKey) parse() (verificationKey, bool) {
	if j.ID == "" || j.Use != "" && j.Use != "sig" {
		return verificationKey{}, false
	}
	switch j.Type {
	case "RSA":
		return j.parseRSA()
	case "EC":
		return j.parseEC()
	}
	return verificationKey{}, false
}

func (j *jsonWebKey) parseRSA() (verificationKey, bool) {
	n, nErr := base64.RawURLEncoding.DecodeString(j.N)
	e, eErr := base64.RawURLEncoding.DecodeString(j.E)
	modulus, exponent := new(big.Int).SetBytes(n), new(big.Int).SetBytes(e)
	bits := modulus.BitLen()
	if nErr != nil || eErr != nil || bits < minRSABits || bits > maxRSABits || exponent.BitLen() > 31 || exponent.Int64() < 3 {
		return verificationKey{}, false
	}
	return verificationKey{rsa: &rsa.PublicKey{N: modulus, E: int(exponent.Int64())}}, true
}

func (j *jsonWebKey) parseEC() (verificationKey, bool) {
	x, xErr := base64.RawURLEncoding.DecodeString(j.X)
	y, yErr := base64.RawURLEncoding.DecodeString(j.Y)
	if j.Curve != "P-256" || xErr != nil || yErr != nil || len(x) != p256Bytes || len(y) != p256Bytes {
		return verificationKey{}, false
	}
	point := slices.Concat([]byte{4}, x, y) // uncompressed (SEC 1, 2.3.3)
	public, err := ecdsa.ParseUncompressedPublicKey(elliptic.P256(), point)
	return verificationKey{ecdsa: public}, err == nil // or it is not on the curve
}
