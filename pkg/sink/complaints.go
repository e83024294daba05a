package sink

import (
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"

	"github.com/eventd/eventd/pkg/ledger"
	"github.com/eventd/eventd/pkg/occurrence"
)

// complaintInterval is how often one kind of loss is worth a line in the log.
const complaintInterval = time.Minute

// complaints are what the log says of occurrences that were not written: a line
// now and then for each reason, with one of them for an example, and how many
// there have been.
type complaints struct {
	logger klog.Logger
	ledger *ledger.Ledger

	mu   sync.Mutex
	last map[string]time.Time // by reason
	// missing are the rights that the log has told of.
	missing map[deniedRight]bool
}

type deniedRight struct {
	right right
	api   occurrence.API
}

func newComplaints(logger klog.Logger, l *ledger.Ledger) *complaints {
	return &complaints{logger: logger, ledger: l, last: make(map[string]time.Time), missing: make(map[deniedRight]bool)}
}

// take notes the end of an occurrence of an Event, which is in the ledger.
func (c *complaints) take(event *corev1.Event, end occurrence.Settlement) {
	reason := complaint(end)
	if reason == "" || !c.isTime(reason, time.Now()) {
		return
	}
	totals := c.ledger.Totals()
	soFar := totals.Dropped[end.Reason]
	if end.Outcome == occurrence.Uncertain {
		soFar = totals.Outcomes[occurrence.Uncertain]
	}
	object := &event.InvolvedObject
	c.logger.Error(end.Err, "Occurrences are not written", "reason", reason, "soFar", soFar, "quietFor", complaintInterval,
		"kind", object.Kind, "object", klog.KRef(object.Namespace, object.Name), "eventReason", event.Reason)
}

// unreachable notes that there was no connection to the apiserver.
func (c *complaints) unreachable(err error) {
	if c.isTime(string(classUnreachable), time.Now()) {
		c.logger.Error(err, "Unable to reach the apiserver; nothing is given up for that, but to make room", "quietFor", complaintInterval)
	}
}

// abandoned notes that a request ignores that its time is over.
func (c *complaints) abandoned(err error) {
	if c.isTime("abandoned", time.Now()) {
		c.logger.Error(err, "A request to the apiserver has not returned, though its time is over; its goroutine is left alone", "quietFor", complaintInterval)
	}
}

// drawn notes that a name was drawn at random.
func (c *complaints) drawn(r *request) {
	switch {
	case r.drawn == unmarked && c.isTime(string(unmarked), time.Now()):
		c.logger.Info("Admission removes eventd's annotations: each process writes Events of its own", "quietFor", complaintInterval,
			"namespace", r.namespace)
	case r.drawn == occupied && c.isTime(string(occupied), time.Now()):
		c.logger.Error(nil, "Foreign Events have all names that an Event could have; it gets a random one", "quietFor", complaintInterval,
			"event", klog.KRef(r.namespace, r.name))
	}
}

// denied notes that the apiserver does not allow what an answer is to, once for each
// right and API group.
func (c *complaints) denied(r *request, a answer) {
	right, _ := rightFor(a.verb)
	c.mu.Lock()
	key := deniedRight{right, r.api}
	known := c.missing[key]
	c.missing[key] = true
	c.mu.Unlock()
	if !known {
		c.logger.Error(a.err, "The right to a verb on Events is missing; Events are written in another way", "verb", right.String(),
			"apiGroup", r.api.GroupVersion().Group, "namespace", r.namespace)
	}
}

func (c *complaints) isTime(reason string, now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if last, ok := c.last[reason]; ok && now.Sub(last) < complaintInterval {
		return false
	}
	c.last[reason] = now
	return true
}

// complaint is what there is to be said of an end, "" if nothing: namespaces come
// and go with all that is in them, and what a shutdown leaves behind is returned
// by Close.
func complaint(end occurrence.Settlement) string {
	switch {
	case end.Counted():
		return ""
	case end.Outcome == occurrence.Uncertain:
		return string(end.Outcome)
	}
	switch end.Reason {
	case occurrence.NamespaceNotFound, occurrence.NamespaceTerminating, occurrence.Shutdown:
		return ""
	default:
		return string(end.Reason)
	}
}
