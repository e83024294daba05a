package intake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/internal/fairlru"
)

const (
	// knownFor is how long credentials are known after they were accepted last. It is
	// much longer than a review is kept: a token that was not presented for a while, or
	// all of them after an apiserver was away, are reviewed again ahead of those of
	// unknown callers.
	knownFor = 15 * time.Minute
	// maxKnown is how many credentials are known, in about 4 MiB.
	maxKnown = 16_384
	// rejectedFor is how long a token that was rejected is not asked about again, and
	// maxRejected of how many tokens that is known. The apiserver's own token cache
	// does not keep a rejection that says why, as those of a kube-apiserver do.
	rejectedFor = 10 * time.Second
	maxRejected = 4096
)

// credential is what a caller presents, hashed with a key of this process. Nobody
// who reads it learns a token, or can tell beforehand what one hashes to.
type credential [sha256.Size]byte

// hasher makes credentials.
type hasher struct{ key []byte }

func newHasher() hasher {
	h := hasher{make([]byte, sha256.Size)}
	_, _ = rand.Read(h.key) // never fails
	return h
}

// of returns what the caller of a request presents, and is false if that is
// nothing: a token, a client certificate, or both. A token for a WebSocket does not
// count: no path here is one.
func (h hasher) of(req *http.Request) (c credential, presented bool) {
	token := bearerToken(req)
	var certificate []byte
	if req.TLS != nil && len(req.TLS.PeerCertificates) > 0 {
		certificate = req.TLS.PeerCertificates[0].Raw
	}
	if token == "" && len(certificate) == 0 {
		return c, false
	}
	kind := byte(0)
	if PassedOn(req) {
		kind = 1 // reviewed for another audience
	}
	sum := hmac.New(sha256.New, h.key)
	_, _ = sum.Write([]byte{kind})
	_, _ = sum.Write([]byte(token)) // a header has no 0 in it
	_, _ = sum.Write([]byte{0})
	_, _ = sum.Write(certificate)
	sum.Sum(c[:0])
	return c, true
}

// knownCredentials are those that were accepted lately. When they are too many,
// the tenant that has most of them loses the one that it has not used for longest:
// tokens are free to make for who may have one. It is safe for use by many
// goroutines.
type knownCredentials struct {
	mu    sync.Mutex
	cache *fairlru.Cache[credential, string, knownCredential] // in groups of one tenant
}

type knownCredential struct {
	tenant string
	// accepted is when the review that accepted it began.
	accepted time.Time
}

func newKnownCredentials(limit int) *knownCredentials {
	return &knownCredentials{cache: fairlru.New[credential, string, knownCredential](int64(limit), nil)}
}

// get returns whose credentials these are, and when they were accepted last.
func (k *knownCredentials) get(c credential) (tenant string, accepted time.Time, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok := k.cache.Get(c)
	if ok && time.Since(known.accepted) > knownFor {
		k.cache.Remove(c)
		return "", time.Time{}, false
	}
	return known.tenant, known.accepted, ok
}

// accept remembers credentials that a review, begun then, has accepted.
func (k *knownCredentials) accept(c credential, tenant string, begun time.Time) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cache.Add(c, tenant, knownCredential{tenant, begun}, 1)
}

// forget is for credentials that are not accepted any more.
func (k *knownCredentials) forget(c credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cache.Remove(c)
}

// rejectedCredentials are those that were rejected a moment ago. Whoever presents
// many pushes out nothing but others of these. It is safe for use by many
// goroutines.
type rejectedCredentials struct {
	mu    sync.Mutex
	until *simplelru.LRU[credential, time.Time]
}

func newRejectedCredentials() *rejectedCredentials {
	until, _ := simplelru.NewLRU[credential, time.Time](maxRejected, nil) // fails for a size of 0
	return &rejectedCredentials{until: until}
}

func (r *rejectedCredentials) add(c credential) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.until.Add(c, time.Now().Add(rejectedFor))
}

func (r *rejectedCredentials) contain(c credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.until.Peek(c)
	return ok && time.Now().Before(until)
}
