package sink

import (
	"cmp"
	"crypto/rand"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/internal/identity"
	"github.com/eventd/eventd/pkg/occurrence"
)

// settled is an entry that has its outcome.
type settled struct {
	*entry
	// parts of the entry's weight by outcome.
	created, written, replayed int64
	end                        occurrence.Settlement
}

// observation is what was last seen of the stored Event.
type observation struct {
	meta      *corev1.Event // name, UID, resourceVersion and creationTimestamp
	count     int64
	shares    shares
	message   uint64           // its hash; it is only compared, and may be long
	last      metav1.Time      // classic Events
	lastMicro metav1.MicroTime // new-style Events
}

func (o *observation) resourceVersion() string { return o.meta.ResourceVersion }

// account is what one sink instance owes one Event, and what it knows of it.
// It decides what to write and what an answer means; the rules are those of
// docs/counting.md. It does no I/O, and one goroutine at a time may use it.
type account struct {
	instance contributor
	key      occurrence.Key
	// namespace of the Event, and what its name begins with.
	namespace, object string
	digest            occurrence.Digest // of the series; see identify
	// unidentified is an Event of the series while the digest is not known.
	unidentified *corev1.Event
	combined     bool
	// keyed: the digest follows from no Event, but from somebody's own key.
	keyed     bool
	eventType string

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

	// observed is nil if the object is not known to exist; author is who began it.
	observed *observation
	author   author
	// bare: the next write leaves out labels and annotations of reporters, since
	// the apiserver has refused one with them.
	bare bool
	// mustRead: the object exists, but not as it was last observed.
	mustRead bool
	// suffix counts the foreign objects found under the names before. Past
	// identity.MaxSuffix the name has a nonce instead, 0 until one is drawn.
	suffix int
	nonce  uint64
	// own: the object that was observed is nobody else's, since it has no
	// annotations by which others would know it. Then sent is what the last write
	// that was sent has put there, as far as it is not observed.
	own  bool
	sent plan
}

func newAccount(instance contributor, t *occurrence.Target) *account {
	a := &account{instance: instance, key: t.Key, namespace: t.Event.Namespace, object: t.Name, digest: t.Digest, combined: t.Combined, keyed: t.Digest != occurrence.Digest{}, eventType: t.Event.Type}
	if !a.keyed {
		a.unidentified = t.Identified()
	}
	return a
}

// identify computes the digest, if nobody has. That takes a while, so it is left
// to those who make requests.
func (a *account) identify() {
	if a.unidentified != nil {
		t := occurrence.Target{Event: a.unidentified, Combined: a.combined}
		a.digest, a.unidentified = t.Series(), nil
	}
}

// add appends what was reported, with a sequence higher than any before. It may
// share an entry with what came after the sequence apart. It returns whether there
// is one more entry, and by how many bytes the account has grown.
func (a *account) add(sequence, sealed uint64, e *entry, c claim) (isNew bool, bytes int64) {
	e.sequence = sequence
	n := len(a.pending)
	if n > 0 && a.pending[n-1].sequence > max(sealed, a.carried) && a.pending[n-1].takes(e) {
		n--
		a.pending[n].merge(e)
	} else {
		a.pending = append(a.pending, *e)
		isNew = true
	}
	if c != (claim{}) {
		a.pending[n].claim(c)
	}
	return isNew, a.pending[n].measure()
}

// newest is the entry that was added last.
func (a *account) newest() *entry { return &a.pending[len(a.pending)-1] }

// last is the sequence of the newest pending entry, 0 if there is none.
func (a *account) last() uint64 {
	if len(a.pending) == 0 {
		return 0
	}
	return a.pending[len(a.pending)-1].sequence
}

// awaited is the last sequence whose outcome somebody waits for, 0 if there is none.
func (a *account) awaited() uint64 {
	for i := range slices.Backward(a.pending) {
		if a.pending[i].settled != nil {
			return a.pending[i].sequence
		}
	}
	return 0
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
	if a.nonce != 0 {
		return identity.UniqueName(a.object, a.digest, a.nonce)
	}
	return identity.Name(a.object, a.digest, a.suffix)
}

// drawName draws a name that nobody can have taken, for an object to create that
// needs one. What may have been created keeps its name until that is known.
func (a *account) drawName(m means) drawn {
	why := notDrawn
	switch {
	case a.nonce != 0 || a.doubt > 0 || !a.creates():
	case m.change == verbNone:
		why = forbidden
	case m.unmarked:
		why = unmarked
	case a.suffix > identity.MaxSuffix:
		why = occupied
	}
	if why != notDrawn {
		var b [8]byte
		rand.Read(b[:])                             // never fails
		a.nonce = binary.BigEndian.Uint64(b[:]) | 1 // 0 is none
	}
	return why
}

// plan is what a write changes.
type plan struct {
	base   *observation // nil to create
	count  int64
	added  int64
	shares shares
	upTo   uint64 // the last sequence included
}

// isTooMany tells whether the object's count cannot take what is added: then it goes
// on with another Event, and somebody who has made one with the highest count loses
// nobody anything.
func (p *plan) isTooMany() bool { return p.base != nil && p.base.count+p.added > math.MaxInt32 }

// maxBatch bounds the entries and claims that one write includes, and so the
// time that is spent on planning and settling it: some milliseconds, at 0.1 µs
// for a claim and 0.2 µs for an entry.
const maxBatch = 1 << 15

// batch is what the next write includes. Where no annotation tells which of
// several writes has taken effect, there is one at a time; so there is where the
// object's count may have no room for what has come since.
func (a *account) batch() []entry {
	n, size := 0, 0
	repeats := len(a.pending) > 0 && a.pending[0].sequence <= a.doubt && (a.isAlone() || a.isNearlyFull())
	for ; n < len(a.pending) && !(repeats && a.pending[n].sequence > a.doubt); n++ {
		if size += a.pending[n].size(); size > maxBatch {
			break
		}
	}
	return a.pending[:n]
}

// isNearlyFull tells whether the object's count may have no room for all that is
// pending.
func (a *account) isNearlyFull() bool {
	return a.observed != nil && a.observed.count > math.MaxInt32-a.weight()
}

// plan includes the whole batch.
func (a *account) plan() plan {
	p := plan{base: a.observed}
	if p.base == nil {
		p.shares.creator = a.instance
	} else {
		p.count, p.shares = p.base.count, p.base.shares
	}
	clients := append(make([]share, 0, maxClients+1), p.shares.clients...)
	batch := a.batch()
	for i := range batch {
		e := &batch[i]
		e.limited = a.limits(e, &batch[0])
		e.planned, e.forbidden = e.anonymous, 0
		for _, c := range e.claims {
			allowed := c
			if e.limited {
				allowed = limitTo1(c)
			}
			var counted uint64
			clients, counted = raise(clients, c.client, uint64(allowed.total), maxClients)
			added := allowed.above(counted)
			e.planned += added
			e.forbidden += c.above(counted) - added
		}
		p.added += e.planned
		p.upTo = e.sequence
	}
	p.shares.clients = clients
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
		if e := &batch[i]; e.planned > 0 || e.changes && !e.limited {
			return nil
		}
	}
	return a.settleWritten(p.upTo, false)
}

// begin marks the plan as carried by a write that is about to be sent.
func (a *account) begin(p plan) {
	if p.base == nil {
		oldest := &a.pending[0]
		a.author.begin(oldest.user, oldest.sequence, a.carried)
	}
	a.carried, a.carriedByCreate = max(a.carried, p.upTo), p.base == nil
	if a.isAlone() {
		a.sent = p
	}
}

// isAlone tells whether nobody else writes to the object under the name.
func (a *account) isAlone() bool { return a.own || a.nonce != 0 }

// succeeded takes the answer to a write that took effect.
func (a *account) succeeded(p plan, object *corev1.Event) []settled {
	a.believe()
	a.bare = false
	if p.base == nil {
		a.author.created(a.pending[0].user)
	}
	o, marked := a.observe(object)
	a.observed, a.mustRead, a.own, a.sent = o, false, !marked, plan{}
	switch {
	case marked:
	case o.meta.UID == "" || o.resourceVersion() == "":
		a.observed = nil // it cannot be told from others
	default:
		// Admission has removed our annotations. From now on nobody but us takes
		// the object for the Event of the series.
		o.shares = p.shares
	}
	return a.settleWrittenOn(o.meta, p.upTo, p.base == nil)
}

// lost takes note that a write got no answer that says whether it took effect.
func (a *account) lost(p plan) { a.doubt, a.doubtBase = p.upTo, p.base }

// believe takes note that nothing is in doubt any more.
func (a *account) believe() { a.doubt, a.doubtBase = 0, nil }

// stale takes note that the object exists, but not as it was last observed.
func (a *account) stale() { a.mustRead = true }

// gone takes note that there is no object under the name. What only wanted to
// change it, without counting anything, ends there.
func (a *account) gone(err error) []settled {
	nonce := a.nonce
	a.forget()
	a.suffix = 0
	switch {
	case a.doubtBase != nil:
		// What was in doubt has gone with the object, if it had taken effect.
		a.believe()
	case a.doubt > 0:
		a.nonce = nonce // what is in doubt may still be created under the name
	}
	if len(a.pending) == 0 {
		return nil
	}
	// What counts nothing may still have a weight: of a client that has reported a
	// higher total before.
	p := a.plan()
	if p.added > 0 {
		return nil
	}
	return a.giveUp(p.upTo, occurrence.Refused, err)
}

// read takes the object under the name, which may be foreign: then another name
// is to be tried.
func (a *account) read(object *corev1.Event) (out []settled) {
	o, marked := a.observe(object)
	isOwn := !marked && a.recall(o)
	a.mustRead = false
	if !marked && !isOwn || !a.isPlausible(o) || !isOwn && !a.knows(o) && !a.describes(object) {
		if !a.mayHave(o, object) {
			a.believe()
		}
		return a.leave()
	}
	mine, found := find(o.shares.sinks, a.instance)
	a.author.read(a.observed, o, mine, a.carried)
	a.observed, a.own = o, isOwn
	if found {
		// Not only what is in doubt: a client or a proxy may have sent a write
		// twice and have told us of the second answer only.
		out = a.settleWritten(mine, a.carriedByCreate)
	}
	if a.doubt > 0 && (a.doubtBase == nil || o.resourceVersion() != a.doubtBase.resourceVersion()) {
		// The write in doubt can no longer take effect, so what is read is the
		// whole truth, unless our entry may have been pushed out.
		if !found && a.mayBePushedOut(o) {
			out = append(out, a.settleDoubt()...)
		}
		a.believe()
	}
	return out
}

// mayHave tells whether what is in doubt may have been written to an object that is
// left as foreign. A patch names the object that it is based on. A create leaves one
// that describes the series, whatever its annotations say by now.
func (a *account) mayHave(o *observation, object *corev1.Event) bool {
	if a.doubtBase != nil {
		return a.doubtBase.meta.UID == o.meta.UID
	}
	return a.describes(object)
}

// recall tells whether an object without our annotations is one that only we have
// written, and what they would say. Nobody else can know a name that was drawn
// before there is an object.
func (a *account) recall(o *observation) bool {
	switch {
	case a.observed == nil && a.nonce != 0:
		o.shares = a.sent.shares
	case a.own && a.knows(o):
		o.shares = a.observed.shares
		if a.sent.added > 0 && o.count >= a.sent.count {
			o.shares = a.sent.shares
		}
	default:
		return false
	}
	return true
}

// part lets go of an object that cannot be changed, nor even read: what follows
// goes into another one. It returns what settles with that.
func (a *account) part() (out []settled) {
	if a.nonce != 0 && a.observed == nil {
		// It is there, and only we knew the name.
		meta := metav1.ObjectMeta{Namespace: a.namespace, Name: a.name()}
		out = a.settleWrittenOn(&corev1.Event{ObjectMeta: meta}, a.sent.upTo, true)
	} else {
		out = a.settleDoubt()
	}
	a.believe()
	a.forget()
	return out
}

// forget forgets the object that was observed, and its name if that was drawn.
func (a *account) forget() {
	a.observed, a.mustRead, a.nonce, a.own, a.sent = nil, false, 0, false, plan{}
}

// knows tells whether the object is the one that was observed before.
func (a *account) knows(o *observation) bool {
	return a.observed != nil && a.observed.meta.UID == o.meta.UID
}

// describes tells whether an object says what the series is about, and not only
// that it is its Event. The message of a classic Event may be another: the next
// patch changes it.
func (a *account) describes(object *corev1.Event) bool {
	switch {
	case a.keyed:
		return true // nobody knows the key of an object
	case object.EventTime.IsZero():
		// Readers would take the count of its series for the Event's.
		return object.Series == nil && identity.OfCombined(object) == identity.OfCombined(a.newest().newest.event)
	case a.combined:
		return identity.OfCombined(object) == a.digest
	default:
		return identity.Of(object) == a.digest
	}
}

// isPlausible tells whether a write of this account may have left the instance's
// own share that an object has: one that is older than all that is pending, or
// that of a pending entry, as it is with them that writes end. Sequences can not be
// guessed, so nobody else can have the pending ones settled by such a share.
func (a *account) isPlausible(o *observation) bool {
	mine, found := find(o.shares.sinks, a.instance)
	if !found || mine < a.pending[0].sequence {
		return true
	}
	_, ends := slices.BinarySearchFunc(a.pending, mine, func(e entry, mine uint64) int { return cmp.Compare(e.sequence, mine) })
	return ends && mine <= a.carried
}

// leave leaves the object under the name to others, and what may have been written
// to it.
func (a *account) leave() []settled {
	out := a.settleDoubt()
	a.believe()
	a.nextName()
	return out
}

// nextName is for when the object under the name is of no use.
func (a *account) nextName() {
	a.forget()
	a.bare = false
	a.suffix++
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
		return settled{entry: e, end: occurrence.Settlement{Outcome: occurrence.Uncertain}}
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
		return settled{entry: e, end: end}
	})
	if a.doubt <= upTo {
		if a.doubt > 0 && (a.own || a.observed == nil && a.nonce != 0) {
			// Once it is there, nothing tells it from what follows.
			a.forget()
		}
		a.believe()
	}
	if len(out) > 0 {
		a.bare = false
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
		s := settled{entry: e, written: e.planned, replayed: e.weight - e.planned - e.forbidden}
		s.end.Outcome, s.end.Object = e.merged, object
		switch {
		case created && s.written > 0:
			s.created, s.written, created = 1, s.written-1, false
			s.end.Outcome = occurrence.Created
		case s.written == 0 && s.replayed > 0:
			s.end.Outcome = occurrence.Replayed
		case s.written == 0 && e.limited:
			s.end = a.patchForbidden()
		}
		return s
	})
}

func (a *account) settleUpTo(upTo uint64, settle func(*entry) settled) []settled {
	n, _ := slices.BinarySearchFunc(a.pending, upTo, func(e entry, upTo uint64) int {
		if e.sequence <= upTo {
			return -1
		}
		return 1
	})
	if n == 0 {
		return nil
	}
	out := make([]settled, n)
	for i := range out {
		out[i] = settle(&a.pending[i])
	}
	// A new array leaves what has settled to out alone; so does none, where a
	// clone of nothing would hold on to the old one.
	if n == len(a.pending) {
		a.pending = nil
	} else {
		a.pending = slices.Clone(a.pending[n:])
	}
	return out
}

// isMarked tells whether an object has the annotation of the series.
func (a *account) isMarked(event *corev1.Event) bool {
	return event.Annotations[identity.Annotation] == a.digest.String()
}

// observe reads an object; marked tells whether it has our annotations.
func (a *account) observe(event *corev1.Event) (o *observation, marked bool) {
	o = &observation{
		meta: &corev1.Event{ObjectMeta: metav1.ObjectMeta{
			Name:              event.Name,
			Namespace:         event.Namespace,
			UID:               event.UID,
			ResourceVersion:   event.ResourceVersion,
			CreationTimestamp: event.CreationTimestamp,
		}},
		count:   countOf(event),
		message: hashOf(event.Message),
		last:    event.LastTimestamp,
	}
	if event.Series != nil {
		o.lastMicro = event.Series.LastObservedTime
	}
	if !a.isMarked(event) {
		return o, false
	}
	var err error
	o.shares, err = parseShares(event.Annotations[sharesAnnotation])
	return o, err == nil
}

var messageSeed = maphash.MakeSeed()

func hashOf(message string) uint64 { return maphash.String(messageSeed, message) }

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
