package intake

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"hash"
	"net/http"
	"sync"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"

	"github.com/eventd/eventd/internal/fairlru"
	"github.com/eventd/eventd/pkg/occurrence"
)

const (
	// knownFor is for how long credentials are known after they were accepted last. It is
	// much longer than a review is cached: a token that was not presented for a while, or
	// all of them after an apiserver was away, are reviewed again ahead of those of
	// unknown callers.
	knownFor = 15 * time.Minute
	// maxKnown is the maximum number of known credentials, in 5.5 MiB.
	maxKnown = 16_384
	// rejectedFor is for how long a rejected token is not reviewed again, and maxRejected
	// the maximum number of such tokens. The apiserver's own token cache does not cache
	// a rejection with an error, and a kube-apiserver always returns one.
	rejectedFor = 10 * time.Second
	maxRejected = 4096
)

// credential is a keyed hash of what a caller presents. The key is random, so that a
// hash does not disclose a token and cannot be computed in advance.
type credential [sha256.Size]byte

// hasher computes credentials. It is safe for use by many goroutines.
type hasher struct {
	keyed *sync.Pool // of *keyedHash
}

type keyedHash struct {
	hash.Hash
	of, sum []byte // what is hashed, and the result
}

func newHasher() hasher {
	key := make([]byte, sha256.Size)
	_, _ = rand.Read(key) // never fails
	return hasher{&sync.Pool{New: func() any { return &keyedHash{Hash: hmac.New(sha256.New, key)} }}}
}

// of returns the credential of a request: of a token, a client certificate, or both. It
// returns false if there is neither. It ignores a token for a WebSocket, as none is
// served.
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
	if Forwarded(req) {
		kind = 1 // reviewed for another audience
	}
	k := h.keyed.Get().(*keyedHash)
	defer h.keyed.Put(k)
	k.of = append(append(append(k.of[:0], kind), token...), 0) // a header has no 0 in it
	k.Reset()
	_, _ = k.Write(k.of)
	_, _ = k.Write(certificate)
	k.sum = k.Sum(k.sum[:0])
	clear(k.of)
	return credential(k.sum), true
}

// knownCredentials are recently accepted credentials. When there are too many, the
// tenant with the most loses its least recently used one, because a tenant may create
// many tokens. It is safe for use by many goroutines.
type knownCredentials struct {
	mu    sync.Mutex
	cache *fairlru.Cache[credential, string, knownCredential] // in groups of one tenant
}

type knownCredential struct {
	// user is whom the credentials authenticate: replicas and frontProxy for any.
	user string
	// accepted is when the review that accepted it began.
	accepted time.Time
	// verification is that of a client certificate.
	verification verification
	rights       rights
}

// grantedFor is for how long a right of a caller is taken into account after it was granted last, and grantedPeriod
// how often that is recorded.
const grantedFor, grantedPeriod = knownFor, time.Minute

// rights is what was decided about requests with some credentials, zero if nothing was.
type rights struct {
	granted time.Time // last, to grantedPeriod
	denied  bool      // some right
}

// none reports whether no right was granted, and one was denied.
func (r rights) none() bool { return r.denied && !r.some() }

// some reports whether some right was granted.
func (r rights) some() bool { return time.Since(r.granted) < grantedFor }

func newKnownCredentials(limit int) *knownCredentials {
	return &knownCredentials{cache: fairlru.New[credential, string, knownCredential](int64(limit), nil)}
}

// get returns what is known of credentials.
func (k *knownCredentials) get(c credential) (known knownCredential, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	known, ok = k.cache.Get(c)
	if ok && time.Since(known.accepted) > knownFor {
		k.cache.Remove(c)
		return knownCredential{}, false
	}
	return known, ok
}

// add adds credentials that were accepted.
func (k *knownCredentials) add(c credential, known knownCredential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if old, ok := k.cache.Peek(c); ok {
		known.rights = old.rights
	}
	k.cache.Add(c, occurrence.TenantOf(known.user), known, 1)
}

// decided records whether a right was granted to a caller. It records nothing of credentials for several users.
func (k *knownCredentials) decided(c credential, granted bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch known := k.cache.Use(c); {
	case known == nil || known.user == replicas || known.user == frontProxy:
	case granted:
		known.rights.granted = time.Now()
	default:
		known.rights.denied = true
	}
}

// remove removes credentials that are no longer accepted.
func (k *knownCredentials) remove(c credential) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.cache.Remove(c)
}

// rejectedCredentials are recently rejected credentials. They are separate, so that many
// of them evict no known ones. It is safe for use by many goroutines.
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

func (r *rejectedCredentials) contains(c credential) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	until, ok := r.until.Peek(c)
	return ok && time.Now().Before(until)
}
