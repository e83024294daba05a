package intake

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
	"github.com/prometheus/client_golang/prometheus"
	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/shares"
)

// sharedReviewTimeout is the timeout of a review that several requests share. Each of
// them waits no longer than its own timeout.
const sharedReviewTimeout = 30 * time.Second

// sharedAuthorizer makes one review at a time for all requests with the same attributes.
// With the cache of the delegating authorizer alone, every request in flight would make
// a review when a decision expires. And since a review ended with its request, no
// decision would ever be cached if the apiserver is slower than the requests' timeouts.
//
// A limited number of reviews outlive their request. The others end with it, so their
// number is limited by the requests in flight.
//
// Reviews for which the authorizer has no cached decision are rate-limited fairly
// between tenants and their users, since a caller can use another name or namespace each time.
//
// A caller that was allowed is not denied before a later review has denied it too. An apiserver
// that has just started denies what it allows as soon as it has read all roles, and the delegating
// authorizer would repeat that for as long as it caches it.
type sharedAuthorizer struct {
	authorizer  Authorizer
	maxDetached int64 // reviews that may outlive their request
	running     atomic.Int64
	shared      singleflight.Group // by attributesKey
	reviews     *reviews
	decisions   *decisions
	refused     prometheus.Counter
	answered    atomic.Int64 // when the apiserver has answered last, in nanoseconds since 1970
}

func newSharedAuthorizer(authz Authorizer, limit reviewLimit, maxDetached int, ttl time.Duration, refused prometheus.Counter) (*sharedAuthorizer, error) {
	reviews, err := newReviews("access", limit, maxDetached)
	if err != nil {
		return nil, err
	}
	return &sharedAuthorizer{
		authorizer: authz, maxDetached: int64(maxDetached),
		reviews: reviews, decisions: newDecisions(ttl), refused: refused,
	}, nil
}

type decision struct {
	authorizer.Decision
	reason string
	// panicked is the value of a panic of the authorizer, nil if there was none.
	panicked any
}

// Authorize implements Authorizer.
func (s *sharedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if s.decisions.allow(a) {
		return authorizer.DecisionAllow, "", nil
	}
	if hasSelectors(a) { // which are not in the key
		d, err := s.review(ctx, a)
		return d.Decision, d.reason, err
	}
	shared := s.shared.DoChan(string(attributesKey(a)), func() (any, error) { return s.sharedReview(ctx, a) })
	var d decision
	var err error
	withoutSeat(ctx, func() {
		select {
		case result := <-shared:
			d, err = result.Val.(decision), result.Err
		case <-ctx.Done():
			d, err = decision{Decision: authorizer.DecisionNoOpinion}, context.Cause(ctx)
		}
	})
	if d.panicked != nil {
		panic(d.panicked)
	}
	return d.Decision, d.reason, err
}

// sharedReview makes the review for all requests that wait for it. It runs on its own
// goroutine, so a panic is passed to those requests.
func (s *sharedAuthorizer) sharedReview(ctx context.Context, a authorizer.Attributes) (d decision, err error) {
	defer func() {
		if d.panicked = recover(); d.panicked != nil {
			klog.FromContext(ctx).Error(nil, "Authorizing a request panicked", "panic", d.panicked, "stack", string(debug.Stack()))
		}
	}()
	defer s.running.Add(-1)
	if s.running.Add(1) <= s.maxDetached {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, sharedReviewTimeout)
	defer cancel()
	return s.review(ctx, a)
}

// review calls the authorizer. It waits for the rate limit, unless the authorizer has a
// cached decision.
func (s *sharedAuthorizer) review(ctx context.Context, a authorizer.Attributes) (d decision, err error) {
	key := attributesKey(a)
	last := s.decisions.get(a, key)
	switch {
	case time.Since(last.deniedAt) < doubtTime:
		return decision{Decision: authorizer.DecisionNoOpinion}, errDoubtful
	case time.Since(last.begun) < s.decisions.ttl:
		begun := time.Now()
		d.Decision, d.reason, err = s.authorizer.Authorize(ctx, a)
		s.decisions.repeat(a, key, begun, d.Decision)
		return d, err
	}
	var f flow
	if user := a.GetUser(); user != nil {
		f = shares.FlowOf(user.GetName(), "")
	}
	if !last.allowed { // reviews of what was allowed before do not wait behind those of any number of other names
		f = f.Of(shares.Rightless)
	}
	begun := time.Now()
	limited := s.reviews.run(ctx, f, func() {
		begun = time.Now()
		d.Decision, d.reason, err = s.authorizer.Authorize(ctx, a)
	})
	if limited != nil {
		s.refused.Inc()
		return decision{Decision: authorizer.DecisionNoOpinion}, limited
	}
	if err == nil {
		s.answered.Store(time.Now().UnixNano())
	}
	if err == nil && s.decisions.note(a, key, begun, d.Decision) {
		return decision{Decision: authorizer.DecisionNoOpinion}, errDoubtful
	}
	return d, err
}

// answeringTime is for how long an apiserver that has answered a review is taken to answer.
const answeringTime = 10 * time.Second

// answering reports whether the apiserver has answered a review recently.
func (s *sharedAuthorizer) answering() bool {
	return time.Since(time.Unix(0, s.answered.Load())) < answeringTime
}

func hasSelectors(a authorizer.Attributes) bool {
	fields, _ := a.GetFieldSelector()
	labels, _ := a.GetLabelSelector()
	return len(fields) > 0 || len(labels) > 0
}

// errDoubtful is the error of a denial of what was allowed before, until a later review confirms it.
var errDoubtful = errors.New("the apiserver denies what it has allowed before")

const (
	// maxCachedDecisions is the size of the cache of the webhook authorizer.
	maxCachedDecisions = 8192
	// maxCachedKey is the length of attributes whose decision it certainly caches.
	maxCachedKey = 8 << 10
	// doubtTime is for how long a denial of what was allowed before is doubtful: as long as it is
	// cached by default. The next review decides.
	doubtTime = reviewTTL
	// repeatPart is the part of the time to live of a decision for which the authorizer is not called
	// again. Its cache ends that time later than the review has begun, so what it returns may be near
	// its end: a right that is withdrawn may last that part longer.
	repeatPart = 10
)

// decisions are what is known of the last decisions of the authorizer. It is safe for use by many
// goroutines.
type decisions struct {
	ttl time.Duration // of a decision in the authorizer's cache

	mu   sync.Mutex
	last *simplelru.LRU[decisionKey, lastDecision]
}

// decisionKey is the hash of the attributes of a request. No two requests have the same one: what is allowed by it
// is not reviewed.
type decisionKey [sha256.Size]byte

// lastDecision is zero if it is not known.
type lastDecision struct {
	begun    time.Time // of the review
	allowed  bool
	deniedAt time.Time // zero unless the decision before allowed it
	// allowedAt is when the authorizer was called last, if it has allowed the request. That may
	// have been a decision from its cache, of any age.
	allowedAt time.Time
}

func newDecisions(ttl time.Duration) *decisions {
	last, _ := simplelru.NewLRU[decisionKey, lastDecision](maxCachedDecisions, nil) // fails for a size of 0
	return &decisions{ttl: ttl, last: last}
}

// hash returns false for attributes whose decision is not cached, or depends on more.
func (k *decisions) hash(a authorizer.Attributes, key []byte) (decisionKey, bool) {
	if hasSelectors(a) || len(key) > maxCachedKey {
		return decisionKey{}, false
	}
	return sha256.Sum256(key), true
}

// allow reports whether the authorizer has just allowed a request. It would allow it again from its cache, but takes
// longer for it.
func (k *decisions) allow(a authorizer.Attributes) bool {
	var buf [512]byte
	last := k.get(a, appendAttributes(buf[:0], a))
	return time.Since(last.allowedAt) < k.ttl/repeatPart
}

// get returns the last decision. The authorizer has it in its cache since its review began.
func (k *decisions) get(a authorizer.Attributes, key []byte) (last lastDecision) {
	hash, kept := k.hash(a, key)
	if !kept {
		return last
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	last, _ = k.last.Get(hash)
	return last
}

// note records the decision of a review that has ended, and reports whether it is doubtful: no rule
// allows what the review before allowed. A denial by a rule is never doubtful.
func (k *decisions) note(a authorizer.Attributes, key []byte, begun time.Time, d authorizer.Decision) (doubtful bool) {
	hash, kept := k.hash(a, key)
	if !kept {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	last, _ := k.last.Get(hash)
	now := lastDecision{begun: begun, allowed: d == authorizer.DecisionAllow, allowedAt: allowedAt(begun, d)}
	if doubtful = last.allowed && d == authorizer.DecisionNoOpinion; doubtful {
		now.deniedAt = time.Now()
	}
	k.last.Add(hash, now)
	return doubtful
}

// repeat records a decision that the authorizer has returned from its cache.
func (k *decisions) repeat(a authorizer.Attributes, key []byte, called time.Time, d authorizer.Decision) {
	hash, kept := k.hash(a, key)
	if !kept {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	if last, ok := k.last.Get(hash); ok {
		last.allowedAt = allowedAt(called, d)
		k.last.Add(hash, last)
	}
}

// allowedAt is the time of a call that has allowed a request, zero for another one.
func allowedAt(called time.Time, d authorizer.Decision) time.Time {
	if d == authorizer.DecisionAllow {
		return called
	}
	return time.Time{}
}

// attributesKey has all attributes that a decision depends on.
func attributesKey(a authorizer.Attributes) []byte {
	return appendAttributes(make([]byte, 0, 512), a)
}

func appendAttributes(key []byte, a authorizer.Attributes) []byte {
	add := func(parts ...string) {
		for _, part := range parts {
			key = binary.AppendUvarint(key, uint64(len(part)))
			key = append(key, part...)
		}
	}
	list := func(parts []string) {
		key = binary.AppendUvarint(key, uint64(len(parts)))
		add(parts...)
	}
	if user := a.GetUser(); user != nil {
		add(user.GetName(), user.GetUID())
		list(user.GetGroups())
		var names []string
		extra := user.GetExtra()
		if len(extra) > 0 {
			names = slices.Sorted(maps.Keys(extra))
		}
		list(names)
		for _, name := range names {
			list(extra[name])
		}
	}
	add(a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath())
	return key
}
