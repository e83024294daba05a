package page

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// pipeline is the view of PipelineStatus.
type pipeline struct {
	*v1alpha1.PipelineStatus
	// Headline says in a sentence what holds now: the first problem, if there are any.
	Headline string
	// Runbook is what to do about it, if that is written. Detail has the words of others.
	Runbook, Detail string
	Problems        []trouble // further ones
	Healthy         bool
	// Unknown: there was no later answer. Hint says what to do.
	Unknown bool
	Hint    string
	// led is when there was a leader for the last time.
	led time.Time
	// Untouched: no client has reported anything yet. Clients says how one does.
	Untouched bool
	Clients   string
	// In is what an occurrence passes, the apiserver included, Out what an observed Event does.
	In, Out   []station
	History   *history
	Receivers []receiver
	Rules     []ruleKind
}

// trouble is something that is wrong, where it is written what to do, and what others say about it.
type trouble struct{ Text, Runbook, Detail string }

// station is a card.
type station struct {
	Name, Title string
	Healthy     bool
	Health      health
	Message     string
	// Lead is what passes, Figures the next ones that are not 0. More are shown when asked for.
	Lead          *figure
	Figures, More []*figure
	Queue         *queue
	// Deferred is how many series of the queue wait on purpose, until their deadlines.
	Deferred *figure
}

// queue is what waits.
type queue struct {
	Length, Capacity, Oldest *figure
	Bar                      *bar
	// Of is what is counted, if that is not occurrences, and State what that does.
	Of, State string
}

type receiver struct {
	v1alpha1.ReceiverStatus
	// Internal: eventd counts for the metrics of its configuration.
	Internal     bool
	Healthy      bool
	Health       health
	Lag, Waiting *figure
	Delivered    *figure
	Settled      []*figure
}

type history struct {
	*v1alpha1.HistoryStatus
	Health                 health
	Versions, Bytes, Limit *figure
	Bar                    *bar
}

// health is what a card says: a word, and whether it is good or bad, or "" for neither.
type health struct{ Word, Tone string }

var unknown = health{"unknown", ""}

func newHealth(healthy bool) health {
	if healthy {
		return health{"healthy", "good"}
	}
	return health{"problem", "bad"}
}

// newStatus returns the view of a status. led is when there was a leader for the last time, if that is known.
func newStatus(s *v1alpha1.PipelineStatus, led time.Time) *pipeline {
	out := &pipeline{PipelineStatus: s, led: led}
	for _, from := range describe.Stations(s) {
		if describe.OfLeader(from.Name) {
			out.In = append(out.In, newStation(from))
		} else {
			out.Out = append(out.Out, newStation(from))
		}
	}
	for _, r := range s.Receivers {
		out.Receivers = append(out.Receivers, newReceiver(r))
	}
	out.Rules = newRules(s.Rules)
	if s.History != nil {
		out.History = newHistory(s.History)
		if out.History.Bar != nil {
			out.History.Bar.Full = false // it is to be full
		}
	}
	out.Untouched, out.Clients = s.Missing == "" && !reported(s.Stations), docs+"deployment.md#point-clients-at-it"
	out.summarize()
	if describe.Leaderless(describe.Processes(s)[0]) {
		out.forget(out.In, false)
	}
	return out
}

// forget says of stations and receivers that it is not known how they are. Those with a problem may keep it.
func (p *pipeline) forget(stations []station, problems bool) {
	for i := range stations {
		if s := &stations[i]; s.Healthy || problems {
			s.Health = unknown
		}
	}
	for i := range p.Receivers {
		if r := &p.Receivers[i]; r.Healthy || problems {
			r.Health = unknown
		}
	}
}

// unanswered says of all that it is not known since the figures were read, and why.
func (p *pipeline) unanswered(why *problem) {
	p.Healthy, p.Unknown = false, true
	p.Headline, p.Detail, p.Hint = sentence("Unknown since "+wallClock(p.Time.Time)+": "+why.Title), why.Words, why.Hint
	p.Problems, p.Runbook = nil, runbooks+"noleader"
	p.forget(p.In, true)
	p.forget(p.Out, true)
	if p.History != nil {
		p.History.Health = unknown
	}
	silent := func(r *v1alpha1.Replica) {
		if r.Ready = nil; r.UnknownSince == nil {
			r.UnknownSince = &metav1.Time{Time: p.Time.Time}
		}
	}
	all := func(of *v1alpha1.Replica, followers []v1alpha1.Replica) []v1alpha1.Replica {
		silent(of)
		followers = slices.Clone(followers) // they are of the status, which is shown again
		for i := range followers {
			silent(&followers[i])
		}
		return followers
	}
	p.Followers = all(&p.Replica, p.Followers)
	if p.Observe != nil {
		observe := *p.Observe
		p.Observe = &observe
		observe.Followers = all(&observe.Replica, observe.Followers)
	}
}

func wallClock(t time.Time) string { return t.UTC().Format("15:04:05 UTC") }

// reported reports whether there was a request of a client, to this replica or another one.
func reported(stations []v1alpha1.Station) bool {
	for _, s := range stations {
		for _, f := range s.Figures {
			if (f.Metric == "eventd_intake_requests_total" || f.Metric == "eventd_intake_refused_total") && f.Value > 0 {
				return true
			}
		}
	}
	return false
}

func newHistory(s *v1alpha1.HistoryStatus) *history {
	of := func(metric string, value int64) *figure {
		return newFigure(v1alpha1.Figure{Metric: metric, Value: float64(value)})
	}
	return &history{
		HistoryStatus: s, Health: newHealth(s.Connected), Versions: of("eventd_history_versions", s.Versions),
		Bytes: of("eventd_history_bytes", s.Bytes), Limit: of("eventd_history_capacity_bytes", s.MaxBytes),
		Bar: newBar(float64(s.Bytes), float64(s.MaxBytes), "memory of the history"),
	}
}

func newStation(s v1alpha1.Station) station {
	out := station{Name: s.Name, Title: title(s.Name), Healthy: s.Healthy, Health: newHealth(s.Healthy), Message: s.Message, Queue: newQueue(s.Queue)}
	out.Lead, out.Figures, out.More = arrange(s.Figures)
	for _, f := range s.Figures {
		if f.Metric == "eventd_sink_deferred_series" && f.Value > 0 && s.Queue != nil {
			f.Value = min(f.Value, s.Queue.Length.Value) // they may be of different moments
			out.Deferred = newFigure(f)
		}
	}
	return out
}

func newQueue(q *v1alpha1.Queue) *queue {
	if q == nil {
		return nil
	}
	out := &queue{Length: newFigure(q.Length), Of: unit(q.Length.Metric), State: "waiting"}
	switch {
	case out.Of == "bytes":
		out.Of, out.State = "", "used"
	case strings.HasSuffix(q.Length.Metric, "in_flight"):
		out.State = "in flight"
	}
	if q.Capacity != nil {
		out.Capacity = newFigure(*q.Capacity)
		out.Bar = newBar(q.Length.Value, q.Capacity.Value, out.Length.Text+" of "+out.Capacity.Text+" "+out.State)
	}
	if q.OldestSeconds != nil {
		out.Oldest = newFigure(*q.OldestSeconds)
	}
	return out
}

// unit is what a queue has, by the name of its metric.
func unit(metric string) string {
	for _, u := range []string{"series", "versions", "requests", "bytes"} {
		if strings.Contains(metric, u) {
			return u
		}
	}
	return ""
}

// failing are the states of pkg/delivery in which nothing is delivered, against what was configured.
var failing = map[string]bool{"backing_off": true, "hanging": true}

func newReceiver(r v1alpha1.ReceiverStatus) receiver {
	out := receiver{
		ReceiverStatus: r, Internal: r.Name == "_metrics", Healthy: !failing[r.State],
		Lag: newFigure(r.LagSeconds), Waiting: newFigure(r.Pending),
	}
	out.Health = health{strings.ReplaceAll(r.State, "_", " "), newHealth(out.Healthy).Tone}
	for _, f := range r.Settled {
		if out.Delivered == nil && strings.Contains(f.Metric, "delivered") {
			out.Delivered = newFigure(f)
		} else {
			out.Settled = append(out.Settled, newFigure(f))
		}
	}
	return out
}

// title is the name of a station at the beginning of a sentence.
func title(name string) string {
	first, n := utf8.DecodeRuneInString(name)
	return string(unicode.ToUpper(first)) + name[n:]
}

// runbooks are in the documentation, by what is wrong.
const (
	docs             = "https://github.com/eventd/eventd/blob/main/docs/"
	runbooks         = docs + "runbooks.md#eventd"
	deliveryRunbooks = docs + "delivery-runbooks.md#eventd"
)

// stationRunbooks are those of the stations, by name.
var stationRunbooks = map[string]string{
	"intake": runbooks + "noleader", "broadcaster": runbooks + "queuesaturated", "correlator": runbooks + "writesoverdue", "sink": runbooks + "writesoverdue",
	"apiserver": runbooks + "writesoverdue", "observer": deliveryRunbooks + "notobserving", "history": deliveryRunbooks + "notobserving",
}

// observes reports whether a process only observes.
func observes(p v1alpha1.Process) bool { return p.Flags["role"] == "observe" }

// summarize puts problems first, in the order of the pipeline.
func (p *pipeline) summarize() {
	var all []trouble
	add := func(runbook, format string, args ...any) {
		all = append(all, trouble{Text: sentence(fmt.Sprintf(format, args...)), Runbook: runbook})
	}
	detail := func(words string) { all[len(all)-1].Detail = words }
	processes := describe.Processes(p.PipelineStatus)
	if p.Missing != "" {
		absent := map[bool]string{false: "observeabsent", true: "intakeabsent"}
		add(runbooks+absent[observes(processes[0])], "%s", p.Missing)
	}
	for i, of := range processes {
		if describe.Leaderless(of) {
			undone, before := "recorded or written", ""
			if observes(of) {
				undone = "delivered"
			}
			if i == 0 && !p.led.IsZero() {
				before = " (one did at " + wallClock(p.led) + ")"
			}
			add(runbooks+"noleader", "No replica leads%s: nothing is %s until one does", before, undone)
		}
		if r := of.Replica; r.Ready != nil && !*r.Ready {
			add(runbooks+"noleader", "%s is not ready: %s", r.Identity, r.Reason)
		}
	}
	for _, s := range append(append([]station{}, p.In...), p.Out...) {
		if s.Healthy || s.Name == "history" && p.History != nil {
			continue // the history has a sentence of its own
		}
		what := s.Message
		if what == "" {
			what = "fails"
		}
		add(stationRunbooks[s.Name], "%s: %s%s", s.Title, strings.TrimSuffix(what, "."), s.waiting(". "))
	}
	for _, r := range p.Receivers {
		if !r.Healthy {
			add(deliveryRunbooks+"deliverybehind", "The receiver %s is %s, %s behind", r.Name, r.Health.Word, r.Lag.Text)
			detail(r.LastError)
		}
	}
	if p.History != nil && !p.History.Connected {
		add(stationRunbooks["history"], "The history has no watch: it does not see what is stored now")
	}
	for _, of := range processes {
		if c := of.Configuration; c != nil && c.Error != "" {
			add(deliveryRunbooks+"configurationrejected", "The configuration file has an error, so the former one stays in force")
			detail(c.Error)
		}
	}
	for _, kind := range p.Rules {
		for _, r := range kind.Rules {
			if r.failsNow() {
				add(deliveryRunbooks+"expressionfailing", "The expression of %s fails, and does not match then", r.Name)
			}
		}
	}
	for _, of := range processes {
		runbook := runbooks + map[bool]string{false: "notreplicated", true: "observeabsent"}[observes(of)]
		for _, f := range of.Followers {
			if f.Ready != nil && !*f.Ready {
				add(runbook, "%s is not ready: %s", f.Identity, f.Reason)
			}
			if f.UnknownSince != nil {
				add(runbook, "%s has not reported to the leader since %s", f.Identity, wallClock(f.UnknownSince.Time))
			}
		}
	}
	if p.Healthy = len(all) == 0; p.Healthy {
		p.Headline = p.quiet()
		return
	}
	p.Headline, p.Runbook, p.Detail, p.Problems = all[0].Text, all[0].Runbook, all[0].Detail, all[1:]
}

// quiet is the headline when nothing fails. Some Events wait in the sink on purpose.
func (p *pipeline) quiet() string {
	switch {
	case p.Untouched:
		return "Ready. No client has reported anything yet."
	case p.Replica.Role == "leader" && len(p.Followers) == 0:
		return "Nothing fails. No other replica follows: what waits here is lost if this one dies."
	}
	for i := len(p.In) - 1; i >= 0; i-- {
		if waiting := p.In[i].waiting(""); waiting != "" {
			return "All is well. " + title(p.In[i].Name) + ": " + waiting + "."
		}
	}
	return "Nothing waits."
}

// waiting says how much waits at a station, after a separator; nothing if that is so.
func (s station) waiting(separator string) string {
	if s.Queue == nil || s.Queue.Length.Value == "0" || s.Queue.State != "waiting" {
		return ""
	}
	out := separator + s.Queue.Length.Text
	if s.Queue.Of != "" {
		out += space + s.Queue.Of
	}
	switch d := s.Deferred; {
	case d == nil:
		out += " " + verb(s.Queue.Length.Value, "waits", "wait")
	case d.Value == s.Queue.Length.Value:
		out += " " + verb(d.Value, "is", "are") + " deferred"
	default:
		out += " " + verb(s.Queue.Length.Value, "waits", "wait") + ", " + d.Text + " of them deferred"
	}
	if s.Queue.Oldest != nil {
		out += ", the oldest for " + s.Queue.Oldest.Text
	}
	return out
}

func verb(n, one, several string) string {
	if n == "1" {
		return one
	}
	return several
}

// sentence ends with one full stop.
func sentence(s string) string { return strings.TrimRight(s, ". :") + "." }
