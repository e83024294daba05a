package intake

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/asn1"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math/big"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"
)

const testIssuer = "https://kubernetes.default.svc"

// testKey signs tokens as an issuer does.
type testKey struct {
	id, algorithm string
	hash          crypto.Hash
	signer        crypto.Signer
}

func newTestKey(id, algorithm string) testKey {
	k := testKey{id: id, algorithm: algorithm, hash: crypto.SHA256}
	switch algorithm {
	case "RS256":
		k.signer = must(rsa.GenerateKey(rand.Reader, 2048))
	case "ES256":
		k.signer = must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader))
	case "ES384":
		k.hash = crypto.SHA384
		k.signer = must(ecdsa.GenerateKey(elliptic.P384(), rand.Reader))
	}
	return k
}

// testKeys are those of an issuer, with one for each algorithm.
var testKeys = sync.OnceValue(func() map[string]testKey {
	keys := map[string]testKey{}
	for _, algorithm := range []string{"RS256", "ES256"} {
		keys[algorithm] = newTestKey("key-"+algorithm, algorithm)
	}
	return keys
})

func base64URL(data []byte) string { return base64.RawURLEncoding.EncodeToString(data) }

// jsonWebKey is a public key as a JWK set has it (RFC 7517).
type jsonWebKey map[string]any

// jwk is the public part of a key.
func (k testKey) jwk() (public jsonWebKey) {
	data := must(json.Marshal(jose.JSONWebKey{Key: k.signer.Public(), KeyID: k.id, Use: "sig"}))
	if err := json.Unmarshal(data, &public); err != nil {
		panic(err)
	}
	return public
}

func keySet(keys ...jsonWebKey) []byte { return must(json.Marshal(map[string]any{"keys": keys})) }

// sign returns a token with any header and payload.
func (k testKey) sign(header, payload string) string {
	signed := base64URL([]byte(header)) + "." + base64URL([]byte(payload))
	h := k.hash.New()
	h.Write([]byte(signed))
	signature := must(k.signer.Sign(rand.Reader, h.Sum(nil), k.hash))
	if key, ok := k.signer.(*ecdsa.PrivateKey); ok { // a JWT has the two numbers without ASN.1
		var numbers struct{ R, S *big.Int }
		_ = must(asn1.Unmarshal(signature, &numbers))
		size := (key.Params().BitSize + 7) / 8
		signature = append(numbers.R.FillBytes(make([]byte, size)), numbers.S.FillBytes(make([]byte, size))...)
	}
	return signed + "." + base64URL(signature)
}

func (k testKey) header() string { return fmt.Sprintf(`{"alg":%q,"kid":%q}`, k.algorithm, k.id) }

func claimsOf(issuer, subject string, expires time.Time) string {
	return fmt.Sprintf(`{"aud":["a"],"exp":%d,"iat":1,"iss":%q,"nbf":1,"sub":%q}`, expires.Unix(), issuer, subject)
}

// token is that of a ServiceAccount.
func (k testKey) token(namespace, name string) string {
	return k.sign(k.header(), claimsOf(testIssuer, "system:serviceaccount:"+namespace+":"+name, time.Now().Add(time.Hour)))
}

func parsedTestKeys(t testing.TB) *issuerKeys {
	t.Helper()
	var published []jsonWebKey
	for _, key := range testKeys() {
		published = append(published, key.jwk())
	}
	keys := must(parseIssuerKeys(testIssuer, keySet(published...)))
	equal(t, "keys that can be used", len(keys.byID), len(testKeys()))
	return keys
}

func TestTokenVerifiesWithTheKeysOfItsIssuer(t *testing.T) {
	keys := parsedTestKeys(t)
	for algorithm, key := range testKeys() {
		if subject, err := keys.subject(key.token("ns", "a"), time.Now()); err != nil || subject != "system:serviceaccount:ns:a" {
			t.Errorf("%s: %q, %v", algorithm, subject, err)
		}
	}
}

func TestTokenThatTheIssuerHasNotSignedDoesNotVerify(t *testing.T) {
	keys := parsedTestKeys(t)
	now := time.Now()
	r, e := testKeys()["RS256"], testKeys()["ES256"]
	claims := claimsOf(testIssuer, "system:serviceaccount:ns:a", now.Add(time.Hour))
	good := r.sign(r.header(), claims)
	parts := strings.Split(good, ".")
	another, anotherEC := newTestKey(r.id, "RS256"), newTestKey(e.id, "ES256")
	hmacSigned := func() string {
		signed := base64URL([]byte(`{"alg":"HS256","kid":"`+r.id+`"}`)) + "." + base64URL([]byte(claims))
		h := hmac.New(sha256.New, r.signer.Public().(*rsa.PublicKey).N.Bytes())
		h.Write([]byte(signed))
		return signed + "." + base64URL(h.Sum(nil))
	}
	claiming := func(claims string) string { return r.sign(r.header(), claims) }
	for name, token := range map[string]string{
		"nothing":                     "",
		"no token":                    "bogus",
		"points":                      "..",
		"two parts":                   parts[0] + "." + parts[1],
		"four parts":                  good + "." + parts[2],
		"no signature":                parts[0] + "." + parts[1] + ".",
		"the signature of another":    parts[0] + "." + base64URL([]byte(strings.Replace(claims, ":a", ":b", 1))) + "." + parts[2],
		"half a signature":            good[:len(good)-170],
		"a header that is no JSON":    r.sign("{", claims),
		"a header that is too long":   r.sign(`{"alg":"RS256","kid":"`+r.id+`","x":"`+strings.Repeat("x", maxTokenHeaderBytes)+`"}`, claims),
		"a payload that is no JSON":   claiming("{"),
		"more than a token has":       claiming(strings.Replace(claims, `"a"`, `"`+strings.Repeat("a", maxTokenBytes)+`"`, 1)),
		"no algorithm":                r.sign(`{"alg":"none","kid":"`+r.id+`"}`, claims),
		"no algorithm, no signature":  base64URL([]byte(`{"alg":"none","kid":"`+r.id+`"}`)) + "." + parts[1] + ".",
		"an HMAC with the public key": hmacSigned(),
		"the algorithm of other keys": r.sign(`{"alg":"ES256","kid":"`+r.id+`"}`, claims),
		"a key of another kind":       e.sign(`{"alg":"ES256","kid":"`+r.id+`"}`, claims),
		"another RSA key":             another.sign(r.header(), claims),
		"another elliptic key":        anotherEC.sign(e.header(), claims),
		"another curve":               newTestKey(e.id, "ES384").sign(e.header(), claims),
		"expired":                     claiming(claimsOf(testIssuer, "system:serviceaccount:ns:a", now)),
		"without an end":              claiming(`{"iss":"` + testIssuer + `","sub":"system:serviceaccount:ns:a"}`),
		"another issuer":              claiming(claimsOf("https://elsewhere", "system:serviceaccount:ns:a", now.Add(time.Hour))),
		"no issuer":                   claiming(claimsOf("", "system:serviceaccount:ns:a", now.Add(time.Hour))),
		"no ServiceAccount":           claiming(claimsOf(testIssuer, "admin:a", now.Add(time.Hour))),
		"no namespace":                claiming(claimsOf(testIssuer, "system:serviceaccount::a", now.Add(time.Hour))),
		"no name":                     claiming(claimsOf(testIssuer, "system:serviceaccount:a", now.Add(time.Hour))),
	} {
		if subject, err := keys.subject(token, now); err == nil || subject != "" || err == errUnknownKey {
			t.Errorf("%s: verifies as %q, %v", name, subject, err)
		}
	}
	for name, header := range map[string]string{
		"an unknown key": `{"alg":"RS256","kid":"unknown"}`,
		"no key id":      `{"alg":"RS256"}`,
		"a long header":  fmt.Sprintf(`{"alg":"RS256","x":%q}`, strings.Repeat("x", maxTokenHeaderBytes*3/4-22)),
	} {
		if subject, err := keys.subject(r.sign(header, claims), now); err != errUnknownKey || subject != "" {
			t.Errorf("%s: verifies as %q, %v", name, subject, err)
		}
	}
}

// What is no key for signatures, or would make each check of one dear, is left out.
func TestKeysThatCannotBeUsedAreLeftOut(t *testing.T) {
	good, elliptic := testKeys()["RS256"].jwk(), testKeys()["ES256"].jwk()
	with := func(key jsonWebKey, field string, value any) jsonWebKey {
		changed := maps.Clone(key)
		changed["kid"] = "other"
		changed[field] = value
		return changed
	}
	for name, key := range map[string]jsonWebKey{
		"no id":              with(good, "kid", ""),
		"for encryption":     with(good, "use", "enc"),
		"a shared secret":    with(good, "kty", "oct"),
		"a short modulus":    with(good, "n", base64URL(make([]byte, 128))),
		"a long modulus":     with(good, "n", base64URL(append([]byte{1}, make([]byte, maxRSABits/8)...))),
		"a bad modulus":      with(good, "n", "!"+good["n"].(string)),
		"a bad exponent":     with(good, "e", "!"),
		"no exponent":        with(good, "e", ""),
		"an exponent of one": with(good, "e", base64URL([]byte{1})),
		"a slow curve":       newTestKey("slow", "ES384").jwk(),
		"another curve":      with(elliptic, "crv", "P-384"),
		"no point":           with(with(elliptic, "x", ""), "y", ""),
		"a point elsewhere":  with(elliptic, "x", elliptic["y"]),
	} {
		if _, err := parseIssuerKeys(testIssuer, keySet(key)); err == nil {
			t.Errorf("%s: can be used", name)
		}
		if keys, err := parseIssuerKeys(testIssuer, keySet(key, good)); err != nil || len(keys.byID) != 1 {
			t.Errorf("%s: the other key cannot be used: %v", name, err)
		}
	}
	for name, data := range map[string][]byte{
		"garbage":       []byte("<html>"),
		"no keys":       keySet(),
		"too many keys": keySet(append(make([]jsonWebKey, maxIssuerKeys), good)...),
	} {
		if _, err := parseIssuerKeys(testIssuer, data); err == nil {
			t.Errorf("%s: taken for keys", name)
		}
	}
	largest := with(with(good, "e", base64URL([]byte{3})), "n", base64URL(append([]byte{128}, make([]byte, maxRSABits/8-1)...)))
	if _, err := parseIssuerKeys(testIssuer, keySet(append(make([]jsonWebKey, maxIssuerKeys-1), largest)...)); err != nil {
		t.Errorf("the largest key of as many as may be: %v", err)
	}
	if _, err := parseIssuerKeys("", keySet(good)); err == nil {
		t.Error("tokens without an issuer would verify")
	}
}

// FuzzToken verifies anything: it verifies as nobody but whom the issuer has named. An
// encoding of the same token that base64 permits is no other token.
func FuzzToken(f *testing.F) {
	keys := parsedTestKeys(f)
	for _, key := range testKeys() {
		f.Add(key.token("ns", "a"))
		f.Add(key.sign(`{"alg":"none","kid":"`+key.id+`"}`, claimsOf(testIssuer, "", time.Time{})))
	}
	f.Add("eyJhbGciOiJSUzI1NiIsImtpZCI6ImtleS1SUzI1NiJ9.e30.AA")
	f.Add("..")
	f.Fuzz(func(t *testing.T, token string) {
		if subject, err := keys.subject(token, time.Now()); err == nil && subject != "system:serviceaccount:ns:a" {
			t.Errorf("%q verifies as %q", token, subject)
		}
	})
}

// FuzzIssuerKeys reads anything as a JWK set: what is read can be verified with.
func FuzzIssuerKeys(f *testing.F) {
	var tokens []string
	for _, key := range testKeys() {
		f.Add(keySet(key.jwk()))
		tokens = append(tokens, key.sign(key.header(), "{}"))
	}
	f.Add([]byte(`{"keys":[{"kty":"RSA","kid":"key-RS256","n":"AQ","e":"AQAB"},{"kty":"EC","kid":"a","crv":"P-256","x":"","y":""}]}`))
	f.Fuzz(func(_ *testing.T, data []byte) {
		keys, err := parseIssuerKeys(testIssuer, data)
		if err != nil {
			return
		}
		for _, token := range tokens {
			_, _ = keys.subject(token, time.Now())
		}
	})
}
