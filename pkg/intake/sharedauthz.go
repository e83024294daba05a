package intake

import (
	"context"
	"encoding/binary"
	"maps"
	"runtime/debug"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/singleflight"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/klog/v2"
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
type sharedAuthorizer struct {
	authorizer.Authorizer
	most   int64 // questions that may outlive their request
	open   atomic.Int64
	asking singleflight.Group
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
		return s.Authorizer.Authorize(ctx, a)
	}
	answer := s.asking.DoChan(question(a), func() (any, error) { return s.ask(ctx, a) })
	select {
	case shared := <-answer:
		d := shared.Val.(decision)
		if d.panicked != nil {
			panic(d.panicked)
		}
		return d.Decision, d.reason, shared.Err
	case <-ctx.Done():
		return authorizer.DecisionNoOpinion, "", context.Cause(ctx)
	}
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
	d.Decision, d.reason, err = s.Authorizer.Authorize(ctx, a)
	return d, err
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
