package scheduler

import (
	"time"

	"github.com/hashicorp/golang-lru/v2/simplelru"
)

// namespaceHealth decides how many slots of the limiter each namespace may use, and
// whether a slow or missing answer counts against its namespace or against the apiserver.
//
// A namespace may use a part of the slots that others leave. So requests of a namespace
// that hang, for example behind an admission webhook, leave some slots, of which the next
// namespace may use a part, and so on. A namespace that is slow while others are not is
// degraded: it may use fewer slots, down to one, until it is quick again. All degraded
// namespaces together may use half of the slots.
//
// It is not safe for concurrent use; the owner of the Scheduler guards it.
type namespaceHealth struct {
	limiter  *limiter
	degraded int // slots that degraded namespaces use
	// prompt are the last answers in good time, of one namespace and of another.
	prompt [2]promptAnswer
	// known has the idle namespaces that were slow or have a rate limit of their own, and
	// refused those of which only a refusal is known. Whoever may create Events in all
	// namespaces can invent names of the latter; they evict none of the former.
	known, refused *simplelru.LRU[string, health]
}

// promptAnswer is an answer in good time.
type promptAnswer struct {
	namespace string
	at        time.Time
}

// health is what is known of one namespace.
type health struct {
	// maxSlots is how many slots it may use, if there are so many.
	maxSlots  float64
	decreased time.Time
	latency   latency   // mean since maxSlots was decreased
	prompt    time.Time // of the last answer in good time
	// throttled is about the part of its requests that were refused as too many.
	throttled float64
	// refusal is why no Event can be created in it. created is the last sequence at the
	// time of the latest request that created one.
	refusal Refusal
	created uint64
}

const (
	// NamespaceShare is the part of the slots that others leave which a namespace may use.
	NamespaceShare = 3. / 4
	// meanWeight is the weight of the last answer in the means of a namespace.
	meanWeight = 0.1
	// slotsIncrease is the factor by which an answer in good time increases the slots of a
	// degraded namespace.
	slotsIncrease = 1.5
	// maxCached bounds the namespaces of each kind that are remembered.
	maxCached = 1024
)

func newNamespaceHealth(l *limiter) *namespaceHealth {
	return &namespaceHealth{limiter: l, known: newHealthCache(), refused: newHealthCache()}
}

func newHealthCache() *simplelru.LRU[string, health] {
	cache, err := simplelru.NewLRU[string, health](maxCached, nil)
	if err != nil {
		panic(err) // the size is a constant
	}
	return cache
}

// share returns how many slots a namespace may use that uses some now.
func (n *namespaceHealth) share(h *health, inUse int) int {
	left := n.limiter.size() - (n.limiter.inUse - inUse)
	return max(1, int(min(NamespaceShare*float64(left), h.maxSlots)))
}

// hasSlotForDegraded reports whether any degraded namespace may use one more slot.
func (n *namespaceHealth) hasSlotForDegraded() bool {
	return n.degraded < max(1, n.limiter.size()/2)
}

// isDegraded reports whether a namespace was slow, and not quick often enough since.
func (n *namespaceHealth) isDegraded(h *health) bool { return h.maxSlots < n.limiter.ceiling }

// acquire takes a slot for a namespace, and reports whether that is degraded. release
// gives the slot back.
func (n *namespaceHealth) acquire(h *health) (degraded bool) {
	n.limiter.acquire()
	if degraded = n.isDegraded(h); degraded {
		n.degraded++
	}
	return degraded
}

func (n *namespaceHealth) release(degraded bool) {
	n.limiter.release()
	if degraded {
		n.degraded--
	}
}

// load returns what is known of a namespace.
func (n *namespaceHealth) load(namespace string) health {
	for _, cache := range [...]*simplelru.LRU[string, health]{n.known, n.refused} {
		if h, ok := cache.Get(namespace); ok {
			return h
		}
	}
	return health{maxSlots: n.limiter.ceiling}
}

// store keeps what is known of a namespace that becomes idle.
func (n *namespaceHealth) store(namespace string, h health, now time.Time) {
	n.known.Remove(namespace)
	n.refused.Remove(namespace)
	switch {
	case n.isDegraded(&h) || h.throttled > 0.5:
		n.known.Add(namespace, h)
	case h.refusal.Until.After(now):
		n.refused.Add(namespace, h)
	}
}

// answered records the answer in a namespace to a request begun at a time, or a missing
// answer.
func (n *namespaceHealth) answered(namespace string, h *health, answer bool, began, now time.Time) {
	took := now.Sub(began)
	if !answer || took >= n.limiter.slow {
		n.wasSlow(namespace, h, answer, began, now)
		return
	}
	n.limiter.grow(began, now)
	h.prompt = now
	h.latency.add(took, meanWeight)
	h.maxSlots = min(n.limiter.ceiling, h.maxSlots*slotsIncrease)
	h.throttled -= h.throttled * meanWeight
	if n.prompt[0].namespace != namespace {
		n.prompt[1] = n.prompt[0]
	}
	n.prompt[0] = promptAnswer{namespace, now}
}

// wasSlow counts a slow or missing answer against the namespace if others were answered
// in good time since: it may then use one slot, unless its mean latency is low. Otherwise
// the answer counts against the apiserver. A missing answer then also halves the slots of
// the namespace, down to the floor of the limiter.
func (n *namespaceHealth) wasSlow(namespace string, h *health, answer bool, began, now time.Time) {
	if began.Before(h.decreased) {
		return // its slots were decreased since
	}
	switch own := n.othersPrompt(namespace, began); {
	case own && (!answer || h.latency.add(now.Sub(began), meanWeight) >= n.limiter.slow):
		h.decrease(1, now)
	case own:
	case !answer:
		h.decrease(max(n.limiter.floor, h.maxSlots/2), now)
		n.limiter.overloaded(began, now)
	default:
		n.limiter.slowAnswer(began, now)
	}
}

func (h *health) decrease(maxSlots float64, now time.Time) {
	h.maxSlots, h.decreased, h.latency = maxSlots, now, 0
}

// overloaded records that a request in a namespace, begun at a time, was answered
// 429. That counts against the apiserver, unless it is a rate limit of the namespace, as
// the EventRateLimit admission plugin may set one: then most of its requests are refused
// while others succeed.
func (n *namespaceHealth) overloaded(namespace string, h *health, began, now time.Time) {
	h.throttled += (1 - h.throttled) * meanWeight
	if h.throttled < 0.5 || !n.othersPrompt(namespace, now.Add(-n.limiter.slow)) {
		n.limiter.overloaded(began, now)
	}
}

// othersPrompt reports whether another namespace had an answer in good time since a time.
func (n *namespaceHealth) othersPrompt(namespace string, since time.Time) bool {
	other := n.prompt[0]
	if other.namespace == namespace {
		other = n.prompt[1]
	}
	return !other.at.Before(since)
}
