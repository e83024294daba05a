package intake

import (
	"context"
	"encoding/binary"
	"hash/maphash"
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

	"github.com/eventd/eventd/pkg/occurrence"
)

// sharedReviewTimeout is how long an answer is waited for on behalf of all who
// share it. Each of them goes when its own time is up.
const sharedReviewTimeout = 30 * time.Second

// sharedAuthorizer has each question asked once at a time, for all requests that
// have it. The cache of the delegating authorizer alone would let every request in
// flight ask the apiserver when an answer expires; and since a question ended with
// its request, an apiserver that is slower than callers are patient would be asked
// again and again, and no answer ever be cached.
//
// No more than a number of questions outlive who has asked them: what is asked on top
// ends with its request, and so is bounded by the requests in flight.
//
// Questions that the cache has no answer to are limited, and tenants take turns: to
// ask about another name or namespace each time is free.
type sharedAuthorizer struct {
	authorizer.Authorizer
	most     int64 // questions that may outlive their request
	open     atomic.Int64
	asking   singleflight.Group
	reviews  *reviews
	answered *answered
	refused  prometheus.Counter
}

func newSharedAuthorizer(authz authorizer.Authorizer, most int, ttl time.Duration, refused prometheus.Counter) (*sharedAuthorizer, error) {
	reviews, err := newReviews("access", accessReviewRate, accessReviewBurst, most)
	if err != nil {
		return nil, err
	}
	return &sharedAuthorizer{
		Authorizer: authz, most: int64(most),
		reviews: reviews, answered: newAnswered(ttl), refused: refused,
	}, nil
}

// decision is an answer.
type decision struct {
	authorizer.Decision
	reason string
	// panicked is what asking has panicked with, nil if it has not.
	panicked any
}

// Authorize implements authorizer.Authorizer.
func (s *sharedAuthorizer) Authorize(ctx context.Context, a authorizer.Attributes) (authorizer.Decision, string, error) {
	if a.IsReadOnly() {
		// It may have selectors, and nobody asks it often.
		d, err := s.review(ctx, a)
		return d.Decision, d.reason, err
	}
	answer := s.asking.DoChan(question(a), func() (any, error) { return s.ask(ctx, a) })
	var d decision
	var err error
	withoutSeat(ctx, func() {
		select {
		case shared := <-answer:
			d, err = shared.Val.(decision), shared.Err
		case <-ctx.Done():
			d, err = decision{Decision: authorizer.DecisionNoOpinion}, context.Cause(ctx)
		}
	})
	if d.panicked != nil {
		panic(d.panicked)
	}
	return d.Decision, d.reason, err
}

// ask asks for all. It is in a goroutine of its own, so that those who wait have to
// panic in its place.
func (s *sharedAuthorizer) ask(ctx context.Context, a authorizer.Attributes) (d decision, err error) {
	defer func() {
		if d.panicked = recover(); d.panicked != nil {
			klog.FromContext(ctx).Error(nil, "Authorizing a request panicked", "panic", d.panicked, "stack", string(debug.Stack()))
		}
	}()
	defer s.open.Add(-1)
	if s.open.Add(1) <= s.most {
		ctx = context.WithoutCancel(ctx)
	}
	ctx, cancel := context.WithTimeout(ctx, sharedReviewTimeout)
	defer cancel()
	return s.review(ctx, a)
}

// review asks the authorizer, when it is the tenant's turn to have the apiserver
// asked. What was answered a moment ago is kept, and no review.
func (s *sharedAuthorizer) review(ctx context.Context, a authorizer.Attributes) (d decision, err error) {
	q := question(a)
	if s.answered.contain(a, q) {
		d.Decision, d.reason, err = s.Authorizer.Authorize(ctx, a)
		return d, err
	}
	var tenant string
	if user := a.GetUser(); user != nil {
		tenant = occurrence.TenantOf(user.GetName())
	}
	begun := time.Now()
	limited := s.reviews.run(ctx, flow{Tenant: tenant}, func() {
		begun = time.Now()
		d.Decision, d.reason, err = s.Authorizer.Authorize(ctx, a)
	})
	if limited != nil {
		s.refused.Inc()
		return decision{Decision: authorizer.DecisionNoOpinion}, limited
	}
	if err == nil {
		s.answered.add(a, q, begun)
	}
	return d, err
}

const (
	// maxAnswered is as many questions as the webhook authorizer keeps the answers of.
	maxAnswered = 8192
	// maxQuestion is the length of one that it certainly keeps the answer of.
	maxQuestion = 8 << 10
)

// answered are the questions that the authorizer still has the answers of. It is
// safe for use by many goroutines.
type answered struct {
	ttl  time.Duration
	seed maphash.Seed

	mu    sync.Mutex
	begun *simplelru.LRU[uint64, time.Time]
}

func newAnswered(ttl time.Duration) *answered {
	begun, _ := simplelru.NewLRU[uint64, time.Time](maxAnswered, nil) // fails for a size of 0
	return &answered{ttl: ttl, seed: maphash.MakeSeed(), begun: begun}
}

// key is false for a question whose answer is not kept, or depends on more.
func (k *answered) key(a authorizer.Attributes, question string) (uint64, bool) {
	fields, _ := a.GetFieldSelector()
	labels, _ := a.GetLabelSelector()
	if len(fields) > 0 || len(labels) > 0 || len(question) > maxQuestion {
		return 0, false
	}
	return maphash.String(k.seed, question), true
}

func (k *answered) add(a authorizer.Attributes, question string, begun time.Time) {
	key, kept := k.key(a, question)
	if !kept {
		return
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.begun.Add(key, begun)
}

func (k *answered) contain(a authorizer.Attributes, question string) bool {
	key, kept := k.key(a, question)
	if !kept {
		return false
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	begun, ok := k.begun.Get(key)
	return ok && time.Since(begun) < k.ttl
}

// question is all that an answer depends on.
func question(a authorizer.Attributes) string {
	q := make([]byte, 0, 512)
	add := func(parts ...string) {
		for _, part := range parts {
			q = binary.AppendUvarint(q, uint64(len(part)))
			q = append(q, part...)
		}
	}
	list := func(parts []string) {
		q = binary.AppendUvarint(q, uint64(len(parts)))
		add(parts...)
	}
	if user := a.GetUser(); user != nil {
		add(user.GetName(), user.GetUID())
		list(user.GetGroups())
		extra := user.GetExtra()
		list(slices.Sorted(maps.Keys(extra)))
		for _, name := range slices.Sorted(maps.Keys(extra)) {
			list(extra[name])
		}
	}
	add(a.GetVerb(), a.GetAPIGroup(), a.GetAPIVersion(), a.GetResource(), a.GetSubresource(), a.GetNamespace(), a.GetName(), a.GetPath())
	return string(q)
}
