package trail

import (
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/internal/truncate"
	"github.com/eventd/eventd/pkg/correlator"
	"github.com/eventd/eventd/pkg/delivery"
	"github.com/eventd/eventd/pkg/occurrence"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/pkg/sink"
)

// CauseAdopted is the cause of a recorded step of occurrences that another replica has recorded, and
// left when it died.
const CauseAdopted = "adopted"

// CausePartlyRejected is the cause of a delivered step if the receiver has rejected some of the same request,
// and has not said which.
const CausePartlyRejected = "partly_rejected"

// Decided implements pipeline.Trail.
func (t *Trail) Decided(o *occurrence.Occurrence, d correlator.Decision) {
	if o.Weight == 0 {
		return // it changes something other than the count
	}
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.begin(d.Target.Event, o.User, now)
	a.add(what{action: v1alpha1.ActionRecorded}, o.Weight)
	switch d.Reason {
	case correlator.Repeat:
		a.add(what{action: v1alpha1.ActionMerged}, o.Weight)
	case correlator.Combined:
		a.add(what{action: v1alpha1.ActionAggregated}, o.Weight)
	}
	if d.Delay > 0 {
		a.until = now.Add(d.Delay)
		w := what{action: v1alpha1.ActionDeferred, cause: d.Deferred.String()}
		if o.Budget != nil {
			w.rule = o.Budget.Name()
		}
		a.add(w, o.Weight)
	}
	a.end(counts{occurrences: o.Weight})
}

// Ended implements pipeline.Trail.
func (t *Trail) Ended(o *occurrence.Occurrence, s occurrence.Settlement) {
	if o.Weight == 0 {
		return
	}
	event := o.Event
	if event == nil {
		if event = (&corev1.Event{}); o.Origin != nil {
			event = o.WithEvent().Event
		}
	}
	detail := detailOf(s.Err)
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.begin(event, o.User, time.Now())
	a.add(what{action: v1alpha1.ActionRecorded}, o.Weight)
	fed := counts{occurrences: o.Weight}
	if s.Outcome == occurrence.Filtered {
		fed.saved = o.Weight
		a.add(what{action: v1alpha1.ActionFiltered, outcome: string(s.Outcome), rule: string(s.Reason)}, o.Weight)
	} else {
		a.detail = detail
		a.add(settled(s), o.Weight)
	}
	a.end(fed)
}

// DryRun records that an intake rule in dry run matches what an occurrence reports, which is weight times. The action
// is what the rule would do, one of rules.Action. It is the function of intake.Options.
func (t *Trail) DryRun(o *occurrence.Occurrence, weight int64, rule, action string) {
	if weight <= 0 || o.Event == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.begin(o.Event, o.User, time.Now())
	a.add(what{action: v1alpha1.ActionWouldBe, cause: action, rule: rule}, weight)
	a.end(counts{})
}

// Adopted implements sink.Trail.
func (t *Trail) Adopted(p sink.Part) {
	if p.Weight == 0 || p.Event == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.begin(p.Event, p.User, time.Now())
	a.add(what{action: v1alpha1.ActionRecorded, cause: CauseAdopted}, p.Weight)
	a.end(counts{occurrences: p.Weight})
}

// Settled implements sink.Trail.
func (t *Trail) Settled(p sink.Part, s occurrence.Settlement) {
	if p.Weight == 0 && p.Writes == 0 || p.Event == nil {
		return
	}
	detail := detailOf(s.Err)
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.begin(p.Event, p.User, time.Now())
	a.detail = detail
	if s.Object != nil {
		a.event = s.Object.Name
	}
	if p.Weight > 0 {
		a.add(settled(s), p.Weight)
	}
	fed := counts{writes: p.Writes}
	switch s.Outcome {
	case occurrence.Created, occurrence.Merged, occurrence.Aggregated:
		fed.saved = max(0, p.Weight-p.Writes)
	}
	a.end(fed)
}

func settled(s occurrence.Settlement) what {
	return what{action: v1alpha1.ActionSettled, outcome: string(s.Outcome), cause: string(s.Reason)}
}

// Delivered implements delivery.Trail.
func (t *Trail) Delivered(receiver string, event *corev1.Event, rejected int) {
	w := what{action: v1alpha1.ActionDelivered, receiver: receiver}
	if rejected > 0 {
		w.cause = CausePartlyRejected
	}
	t.deliver(event, w, "")
}

// NotDelivered implements delivery.Trail.
func (t *Trail) NotDelivered(receiver string, event *corev1.Event, route string, why delivery.NotDelivered, err error) {
	t.deliver(event, what{action: v1alpha1.ActionUnrouted, receiver: receiver, rule: route, cause: string(why)}, detailOf(err))
}

func (t *Trail) deliver(event *corev1.Event, w what, detail string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	a := t.begin(event, "", time.Now())
	a.detail, a.event = detail, event.Name
	a.add(w, 1)
	a.end(counts{})
}

// detailOf returns the words of an error, "" without one. They may be those of an apiserver or a destination. The
// error of a custom sink may panic.
func detailOf(err error) (detail string) {
	if err == nil {
		return ""
	}
	defer func() { _ = recover() }()
	return strings.Clone(truncate.String(err.Error(), maxDetail))
}

// addition adds steps of one series at one time. The mutex must be held from begin to end.
type addition struct {
	t      *Trail
	series *series
	now    time.Time
	// What the steps have.
	event, detail string
	until         time.Time
}

// begin returns an addition to the series of an Event that a user has reported.
func (t *Trail) begin(e *corev1.Event, user string, now time.Time) addition {
	r := t.traceOf(e, user)
	l := labelsOf(e, user)
	s := r.find(&l)
	switch {
	case s == nil:
		s = &series{trace: r, labels: l.clone()}
		s.subject = t.hash.subject(&r.key, s.reason, s.reporter)
		r.series = append(r.series, s)
		r.bytes += s.bytes()
	case s.message != l.message: // combined
		r.bytes -= s.bytes()
		s.message = strings.Clone(l.message)
		r.bytes += s.bytes()
	}
	return addition{t: t, series: s, now: now}
}

// add adds a step, or adds to an equal one.
func (a *addition) add(w what, occurrences int64) {
	s, t := a.series, a.t
	r, now := s.trace, a.now.UnixNano()
	st := s.find(&w)
	if st == nil {
		st = &step{series: s, what: w, first: now}
		s.steps = append(s.steps, st)
		r.steps++
		r.bytes += st.bytes()
		t.trim(r, st)
	}
	st.occurrences += occurrences
	st.last = max(st.last, now)
	r.last = max(r.last, now)
	if !a.until.IsZero() {
		st.upTo = a.until.UnixNano()
	}
	if a.detail != st.detail && a.detail != "" {
		r.bytes += int64(len(a.detail) - len(st.detail))
		st.detail = a.detail
	}
	if a.event != s.event && a.event != "" {
		r.bytes -= s.bytes()
		s.event = strings.Clone(truncate.String(a.event, maxName))
		r.bytes += s.bytes()
	}
	if w.isDrop() {
		t.drops.moveToFront(st, inAll)
		t.namespaces[r.key.namespace].drops.moveToFront(st, inNamespace)
	}
	t.log.add(st, occurrences, now)
}

// end ends the addition. The counts are for the ranking.
func (a *addition) end(c counts) {
	a.t.feedLater(a.series, c, a.now)
	a.t.charge(a.series.trace)
}

func (s *series) bytes() int64 {
	return seriesBytes + s.labels.bytes() + int64(len(s.event)) + subjectBytes
}

func (st *step) bytes() int64 {
	return stepBytes + int64(len(st.detail)+len(st.what.rule)+len(st.what.receiver))
}
