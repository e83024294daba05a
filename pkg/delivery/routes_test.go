package delivery

import (
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// modelRoutes filter some Events, and throttle others.
type modelRoutes struct {
	odd      atomic.Bool
	interval time.Duration
	mu       sync.Mutex
	filtered map[string]bool // by receiver and ID
}

func (r *modelRoutes) view(receiver string) View { return modelView{r, receiver} }

func (r *modelRoutes) hasFiltered(receiver, id string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.filtered[receiver+" "+id]
}

type modelView struct {
	*modelRoutes
	receiver string
}

// isThrottled reports whether the route "throttled" delivers an Event.
func isThrottled(uid types.UID) bool { return uid >= "event-15" && uid <= "event-19" }

func (v modelView) Throttle(route string) Throttle {
	if route != "throttled" {
		return nil
	}
	return perEvent(v.interval)
}

func (v modelView) Deliver(e *corev1.Event) (ok bool, route string) {
	if isThrottled(e.UID) {
		return true, "throttled"
	}
	if v.odd.Load() == (e.UID == "event-3") {
		return true, ""
	}
	if e.UID != "event-3" && e.UID != "event-5" {
		return true, ""
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.filtered[v.receiver+" "+idOf(e)] = true
	return false, "quiet"
}

func (v modelView) Redact(e *corev1.Event) *corev1.Event { return e }
