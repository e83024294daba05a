package sink

import (
	"math"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/internal/occurrence"
)

// entry is one pending occurrence, or several anonymous ones that no write has
// carried yet and nobody waits for.
type entry struct {
	sequence   uint64
	weight     int64
	client     string // key of a client that counts by itself, "" for others
	total      int64  // what that client has reached
	planned    int64  // what the last write that carried it added for it
	occurrence *occurrence.Occurrence
	target     occurrence.Target
	// oldest occurrence in it; occurrence is the newest.
	oldest *occurrence.Occurrence
	first  *corev1.Event // the oldest one's target
	// labels and annotations of the newest occurrence in it that has any.
	labels, annotations map[string]string
	bytes               int64 // about what it takes
}

// entryBytes is what an entry takes beside its Events.
const entryBytes = 1024

// settled is an entry that has its outcome.
type settled struct {
	entry
	// parts of the entry's weight by outcome.
	created, written, replayed int64
	end                        occurrence.Settlement
}

// observation is what was last seen of the stored Event.
type observation struct {
	meta      *corev1.Event // name, UID, resourceVersion and creationTimestamp
	count     int64
	shares    shares
	message   string
	last      metav1.Time      // classic Events
	lastMicro metav1.MicroTime // new-style Events
}

func (o *observation) resourceVersion() string { return o.meta.ResourceVersion }

// account is what one sink instance owes one Event, and what it knows of it.
// It decides what to write and what an answer means; the rules are those of
// docs/counting.md. It does no I/O, and one goroutine at a time may use it.
type account struct {
	instance string
	digest   identity.Digest

	// pending is in order of sequence.
	pending []entry
	// carried is the highest sequence that any write has carried; what came
	// after it may still be combined. carriedByCreate tells of the last write.
	carried         uint64
	carriedByCreate bool
	// doubt is the highest sequence in a write whose answer was lost and that
	// may have taken effect; doubtBase is what it was based on, nil for a create.
	doubt     uint64
	doubtBase *observation

	// observed is nil if the object is not known to exist.
	observed *observation
	// mustRead: the object exists, but not as it was last observed.
	mustRead bool
	// suffix counts the foreign objects found under the names before.
	suffix int
}

// add appends an occurrence with a sequence higher than any before. It returns
// by how many entries and bytes the account has grown.
func (a *account) add(sequence uint64, o *occurrence.Occurrence, t occurrence.Target) (entries int, bytes int64) {
	e := entry{
		sequence: sequence, weight: o.Weight, occurrence: o, target: t, oldest: o, first: t.Event,
		labels: t.Event.Labels, annotations: t.Event.Annotations,
		bytes: entryBytes + int64(t.Event.Size()),
	}
	if o.Client != "" {
		e.client, e.total = clientKey(o.Client), o.Total
	} else if n := len(a.pending); n > 0 && o.Settled == nil {
		tail := &a.pending[n-1]
		if tail.client == "" && tail.occurrence.Settled == nil && tail.sequence > a.carried {
			e.weight += tail.weight
			e.oldest, e.first = tail.oldest, tail.first
			e.bytes += int64(e.first.Size())
			if len(e.labels) == 0 {
				e.labels = tail.labels
			}
			if len(e.annotations) == 0 {
				e.annotations = tail.annotations
			}
			grown := e.bytes - tail.bytes
			*tail = e
			return 0, grown
		}
	}
	a.pending = append(a.pending, e)
	return 1, e.bytes
}

// last is the sequence of the newest pending entry, 0 if there is none.
func (a *account) last() uint64 {
	if len(a.pending) == 0 {
		return 0
	}
	return a.pending[len(a.pending)-1].sequence
}

// recordedBefore is the sequence of the newest pending entry that was recorded
// before t, 0 if there is none.
func (a *account) recordedBefore(t time.Time) uint64 {
	var sequence uint64
	for i := range a.pending {
		if e := &a.pending[i]; e.oldest.Recorded.Before(t) {
			sequence = e.sequence
		}
	}
	return sequence
}

// weight is the sum over what is pending.
func (a *account) weight() int64 {
	var sum int64
	for i := range a.pending {
		sum += a.pending[i].weight
	}
	return sum
}

// name is that of the object to address now.
func (a *account) name() string {
	return identity.Name(a.pending[0].target.Name, a.digest, a.suffix)
}

// plan is what a write changes.
type plan struct {
	base   *observation // nil to create
	count  int64
	added  int64
	shares shares
	upTo   uint64 // the last sequence included
}

// maxBatch bounds the entries that one write includes, and so the time that is
// spent on planning it.
const maxBatch = 500

// batch is what the next write includes.
func (a *account) batch() []entry { return a.pending[:min(len(a.pending), maxBatch)] }

// plan includes the whole batch.
func (a *account) plan() plan {
	p := plan{base: a.observed}
	if p.base == nil {
		p.shares.creator = a.instance
	} else {
		p.count, p.shares = p.base.count, p.base.shares
	}
	batch := a.batch()
	for i := range batch {
		e := &batch[i]
		e.planned = e.weight
		if e.client != "" {
			counted, _ := find(p.shares.clients, e.client)
			reached := min(int64(min(counted, math.MaxInt64)), e.total)
			// Of the interval (total-weight, total] that the client reports,
			// what lies above its stored total.
			e.planned = min(e.weight, e.total-reached)
			p.shares.clients = set(p.shares.clients, e.client, max(counted, uint64(e.total)), maxClients)
		}
		p.added += e.planned
		p.upTo = e.sequence
	}
	p.count = min(p.count+p.added, math.MaxInt32)
	p.shares.sinks = set(p.shares.sinks, a.instance, p.upTo, maxSinks)
	return p
}

// settleReplays settles what needs no write: when the whole batch was counted
// before, through another sink.
func (a *account) settleReplays(p plan) []settled {
	if p.base == nil {
		return nil
	}
	batch := a.batch()
	for i := range batch {
		if e := &batch[i]; e.planned > 0 || e.weight == 0 {
			return nil
		}
	}
	return a.settleWritten(p.upTo, false)
}

// begin marks the plan as carried by a write that is about to be sent.
func (a *account) begin(p plan) {
	a.carried, a.carriedByCreate = max(a.carried, p.upTo), p.base == nil
}

// succeeded takes the answer to a write that took effect.
func (a *account) succeeded(p plan, object *corev1.Event) []settled {
	a.doubt = 0
	o, foreign := a.observe(object)
	if foreign {
		// An admission plugin took our annotations away. The count is right,
		// but no later write can rely on this object.
		a.observed, a.mustRead = nil, false
	} else {
		a.observed, a.mustRead = o, false
	}
	return a.settleWrittenOn(o.meta, p.upTo, p.base == nil)
}

// lost takes note that a write got no answer that says whether it took effect.
func (a *account) lost(p plan) { a.doubt, a.doubtBase = p.upTo, p.base }

// stale takes note that the object exists, but not as it was last observed.
func (a *account) stale() { a.mustRead = true }

// gone takes note that there is no object under the name. What only wanted to
// change it, without counting anything, ends there.
func (a *account) gone(err error) []settled {
	a.observed, a.mustRead, a.suffix = nil, false, 0
	if a.doubtBase != nil {
		// What was in doubt has gone with the object, if it had taken effect.
		a.doubt = 0
	}
	if a.weight() > 0 || len(a.pending) == 0 {
		return nil
	}
	return a.giveUp(a.last(), occurrence.Refused, err)
}

// read takes the object under the name, which may be foreign: then another name
// is to be tried, and read returns false if there is none.
func (a *account) read(object *corev1.Event) (out []settled, ok bool) {
	o, foreign := a.observe(object)
	a.mustRead = false
	if foreign {
		if identity.Of(object) == a.digest {
			// It says what ours would say: somebody may have taken away the
			// annotations of what we wrote.
			out = a.settleDoubt()
		}
		a.observed, a.doubt = nil, 0
		a.suffix++
		return out, a.suffix <= identity.MaxSuffix
	}
	a.observed = o
	mine, found := find(o.shares.sinks, a.instance)
	if found {
		// Not only what is in doubt: a client or a proxy may have sent a write
		// twice and have told us of the second answer only. But only what a
		// write has carried, whatever stands in the annotation.
		out = a.settleWritten(min(mine, a.carried), a.carriedByCreate)
	}
	if a.doubt > 0 && (a.doubtBase == nil || o.resourceVersion() != a.doubtBase.resourceVersion()) {
		// The write in doubt can no longer take effect, so what is read is the
		// whole truth, unless our entry may have been pushed out.
		if !found && a.mayBePushedOut(o) {
			out = append(out, a.settleDoubt()...)
		}
		a.doubt = 0
	}
	return out, true
}

// mayBePushedOut tells whether the write in doubt may have taken effect on an
// object that has no entry of ours. Entries are pushed out oldest first.
func (a *account) mayBePushedOut(o *observation) bool {
	if len(o.shares.sinks) < maxSinks {
		return false
	}
	if a.doubtBase == nil {
		return o.shares.creator == a.instance
	}
	if o.meta.UID != a.doubtBase.meta.UID {
		return false // it was a patch of another object
	}
	for _, e := range a.doubtBase.shares.sinks {
		if value, ok := find(o.shares.sinks, e.contributor); ok && value == e.value {
			return false // this one is older than ours would be
		}
	}
	return true
}

// settleDoubt settles what may have been written, as nobody can tell any more.
func (a *account) settleDoubt() []settled {
	return a.settleUpTo(a.doubt, func(e *entry) settled {
		return settled{entry: *e, end: occurrence.Settlement{Outcome: occurrence.Uncertain}}
	})
}

// giveUp settles everything up to a sequence as dropped for a reason, except
// what may have been written.
func (a *account) giveUp(upTo uint64, reason occurrence.Reason, err error) []settled {
	out := a.settleUpTo(upTo, func(e *entry) settled {
		end := occurrence.Settlement{Outcome: occurrence.Dropped, Reason: reason, Err: err}
		if e.sequence <= a.doubt {
			end = occurrence.Settlement{Outcome: occurrence.Uncertain, Err: err}
		}
		return settled{entry: *e, end: end}
	})
	if a.doubt <= upTo {
		a.doubt = 0
	}
	return out
}

func (a *account) settleWritten(upTo uint64, created bool) []settled {
	return a.settleWrittenOn(a.observed.meta, upTo, created)
}

// settleWrittenOn settles what is in the count of an object. If the write that
// carried it created the object, one unit settles as created.
func (a *account) settleWrittenOn(object *corev1.Event, upTo uint64, created bool) []settled {
	return a.settleUpTo(upTo, func(e *entry) settled {
		s := settled{entry: *e, written: e.planned, replayed: e.weight - e.planned}
		s.end.Outcome, s.end.Object = e.target.Merged(), object
		switch {
		case created && s.written > 0:
			s.created, s.written, created = 1, s.written-1, false
			s.end.Outcome = occurrence.Created
		case s.written == 0 && s.replayed > 0:
			s.end.Outcome = occurrence.Replayed
		}
		return s
	})
}

func (a *account) settleUpTo(upTo uint64, settle func(*entry) settled) []settled {
	var out []settled
	n := 0
	for ; n < len(a.pending) && a.pending[n].sequence <= upTo; n++ {
		out = append(out, settle(&a.pending[n]))
	}
	a.pending = slices.Clone(a.pending[n:]) // lets go of what has settled
	return out
}

// observe reads an object; foreign tells that it is not the account's.
func (a *account) observe(event *corev1.Event) (o *observation, foreign bool) {
	o = &observation{
		meta: &corev1.Event{ObjectMeta: metav1.ObjectMeta{
			Name:              event.Name,
			Namespace:         event.Namespace,
			UID:               event.UID,
			ResourceVersion:   event.ResourceVersion,
			CreationTimestamp: event.CreationTimestamp,
		}},
		count:   countOf(event),
		message: event.Message,
		last:    event.LastTimestamp,
	}
	if event.Series != nil {
		o.lastMicro = event.Series.LastObservedTime
	}
	if event.Annotations[identity.Annotation] != a.digest.String() {
		return o, true
	}
	var err error
	o.shares, err = parseShares(event.Annotations[sharesAnnotation])
	return o, err != nil
}

// countOf is the number of occurrences that an Event stands for.
func countOf(event *corev1.Event) int64 {
	switch {
	case event.EventTime.IsZero():
		return int64(max(1, event.Count))
	case event.Series != nil:
		return int64(max(1, event.Series.Count))
	default:
		return 1
	}
}
