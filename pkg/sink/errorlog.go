package sink

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/internal/grace"
	"github.com/eventd/eventd/internal/ratelimitedlog"
	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/sink/internal/apiclient"
	"github.com/eventd/eventd/pkg/sink/internal/counter"
)

// errorLog logs occurrences that were not written, rate-limited: for each reason one line
// per interval, with an example and the total. It is safe for concurrent use.
type errorLog struct {
	logger klog.Logger
	ledger *ledger.Ledger
	lines  *ratelimitedlog.Limiter // by reason

	mu sync.Mutex
	// missing are the rights that were logged already.
	missing map[deniedRight]bool
}

type deniedRight struct {
	right right
	api   occurrence.API
}

// settled logs the outcome of an occurrence of an Event, which the ledger includes already.
// accepted: its client was answered before.
func (c *errorLog) settled(event *corev1.Event, end occurrence.Settlement, accepted bool) {
	reason := logReason(end, accepted)
	if reason == "" || !c.lines.Allow(reason) {
		return
	}
	totals := c.ledger.Totals()
	soFar := totals.Dropped[end.Reason]
	if end.Outcome == occurrence.Uncertain {
		soFar = totals.Outcomes[occurrence.Uncertain]
	}
	object := &event.InvolvedObject
	c.logger.Error(end.Err, "Occurrences are not written", "reason", reason, "soFar", soFar, "quietFor", ratelimitedlog.Interval,
		"kind", object.Kind, "object", klog.KRef(object.Namespace, object.Name), "eventReason", event.Reason)
}

// unreachable logs that the apiserver cannot be reached.
func (c *errorLog) unreachable(err error) {
	if c.lines.Allow(string(apiclient.ClassUnreachable)) {
		c.logger.Error(err, "Unable to reach the apiserver. Events are kept until a memory limit is reached", "quietFor", ratelimitedlog.Interval)
	}
}

// abandoned logs that a request ignores its timeout.
func (c *errorLog) abandoned(err error) {
	if c.lines.Allow("abandoned") {
		c.logger.Error(err, "A request to the apiserver ignores its timeout and was abandoned. Its goroutine still runs", "quietFor", ratelimitedlog.Interval)
	}
}

// adopting logs that this process writes what another one left. Unlike the rest, it is called by a
// goroutine that Close waits for.
func (c *errorLog) adopting(from counter.Contributor, series int) {
	grace.Run(func() {
		c.logger.Info("Writing what another replica left when it ended or lost the Lease", "contributor", from, "series", series)
	})
}

// adopted logs that nothing of it is left, in the same way.
func (c *errorLog) adopted(from counter.Contributor) {
	grace.Run(func() { c.logger.Info("Nothing is left of what another replica left", "contributor", from) })
}

// tooSlow logs that the session of a follower has ended because of that.
func (c *errorLog) tooSlow(err error) {
	if c.lines.Allow("follower") {
		grace.Run(func() {
			c.logger.Error(err, "A follower holds nothing more until it has begun again", "quietFor", ratelimitedlog.Interval)
		})
	}
}

// drawn logs that an Event gets a random name.
func (c *errorLog) drawn(r *request) {
	switch {
	case r.RandomName == counter.NameUnmarked && c.lines.Allow(string(counter.NameUnmarked)):
		c.logger.Info("Admission removes eventd's annotations: each process writes Events of its own", "quietFor", ratelimitedlog.Interval,
			"namespace", r.Namespace)
	case r.RandomName == counter.NameOccupied && c.lines.Allow(string(counter.NameOccupied)):
		c.logger.Error(nil, "All names of an Event are taken by foreign Events: using a random name", "quietFor", ratelimitedlog.Interval,
			"event", klog.KRef(r.Namespace, r.Name))
	}
}

// denied logs that a right is missing, once for each right and API group.
func (c *errorLog) denied(r *request, a apiclient.Answer) {
	right, _ := rightFor(a.Verb)
	c.mu.Lock()
	key := deniedRight{right, r.API}
	known := c.missing[key]
	c.missing[key] = true
	c.mu.Unlock()
	if !known {
		c.logger.Error(a.Err, "The right to a verb on Events is missing; Events are written in another way", "verb", right.String(),
			"apiGroup", r.API.GroupVersion().Group, "namespace", r.Namespace)
	}
}

// logReason returns the reason under which an outcome is logged, "" if it is not logged:
// namespaces are deleted with their Events, and Close returns what a shutdown drops. That a
// namespace does not exist is logged for clients that were accepted before, and so did not learn
// of it.
func logReason(end occurrence.Settlement, accepted bool) string {
	switch {
	case end.Counted():
		return ""
	case end.Outcome == occurrence.Uncertain:
		return string(end.Outcome)
	}
	switch {
	case end.Reason == occurrence.NamespaceNotFound && accepted:
		return string(end.Reason)
	case end.Reason == occurrence.NamespaceNotFound, end.Reason == occurrence.NamespaceTerminating, end.Reason == occurrence.Shutdown:
		return ""
	default:
		return string(end.Reason)
	}
}
