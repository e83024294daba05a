package page

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// pipeline is the view of PipelineStatus.
type pipeline struct {
	*v1alpha1.PipelineStatus
	// Headline says in a sentence what holds now: the first problem, if there are any.
	Headline string
	Problems []string // further ones
	Healthy  bool
	// In is what an occurrence passes, the apiserver included, Out what an observed Event does.
	In, Out   []station
	History   *history
	Receivers []receiver
}

// station is a card.
type station struct {
	Name, Title string
	Healthy     bool
	Message     string
	// Lead is what passes, Figures the next ones that are not 0. More are shown when asked for.
	Lead          *figure
	Figures, More []*figure
	Queue         *queue
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
	Healthy      bool
	Word         string
	Lag, Waiting *figure
	Delivered    *figure
	Settled      []*figure
}

type history struct {
	*v1alpha1.HistoryStatus
	Bar *bar
}

// inward are the stations of the way in.
var inward = map[string]bool{"intake": true, "broadcaster": true, "correlator": true, "sink": true}

func newStatus(s *v1alpha1.PipelineStatus) *pipeline {
	out := &pipeline{PipelineStatus: s}
	for _, from := range s.Stations {
		if inward[from.Name] {
			out.In = append(out.In, newStation(from))
		} else {
			out.Out = append(out.Out, newStation(from))
		}
	}
	apiserver := newStation(s.Apiserver)
	apiserver.Name, apiserver.Title = "apiserver", "Apiserver"
	out.In = append(out.In, apiserver)
	for _, r := range s.Receivers {
		out.Receivers = append(out.Receivers, newReceiver(r))
	}
	if s.History != nil {
		out.History = &history{HistoryStatus: s.History, Bar: newBar(float64(s.History.Bytes), float64(s.History.MaxBytes), "memory of the history")}
		if out.History.Bar != nil {
			out.History.Bar.Full = false // it is to be full
		}
	}
	out.summarize()
	return out
}

func newStation(s v1alpha1.Station) station {
	out := station{Name: s.Name, Title: title(s.Name), Healthy: s.Healthy, Message: s.Message, Queue: newQueue(s.Queue)}
	out.Lead, out.Figures, out.More = arrange(s.Figures)
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
		ReceiverStatus: r, Healthy: !failing[r.State], Word: strings.ReplaceAll(r.State, "_", " "),
		Lag: newFigure(r.LagSeconds), Waiting: newFigure(r.Pending),
	}
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

// summarize puts problems first, in the order of the pipeline.
func (p *pipeline) summarize() {
	var all []string
	add := func(format string, args ...any) { all = append(all, sentence(fmt.Sprintf(format, args...))) }
	if p.Leader == nil && p.Replica.Role != "alone" {
		add("No replica leads: nothing is recorded or written until one does")
	}
	if p.Replica.Ready != nil && !*p.Replica.Ready {
		add("%s is not ready: %s", p.Replica.Identity, p.Replica.Reason)
	}
	for _, s := range append(append([]station{}, p.In...), p.Out...) {
		if s.Healthy {
			continue
		}
		what := s.Message
		if what == "" {
			what = "fails"
		}
		add("%s: %s%s", s.Title, strings.TrimSuffix(what, "."), s.waiting(". "))
	}
	for _, r := range p.Receivers {
		if !r.Healthy {
			add("The receiver %s is %s, %s behind: %s", r.Name, r.Word, r.Lag.Text, r.LastError)
		}
	}
	if p.History != nil && !p.History.Connected {
		add("The history has no watch: it does not see what is stored now")
	}
	if c := p.Configuration; c != nil && c.Error != "" {
		add("The configuration file has an error, so the former one stays in force: %s", c.Error)
	}
	for _, f := range p.Followers {
		if f.Ready != nil && !*f.Ready {
			add("%s is not ready: %s", f.Identity, f.Reason)
		}
	}
	if p.Healthy = len(all) == 0; p.Healthy {
		p.Headline = p.quiet()
		return
	}
	p.Headline, p.Problems = all[0], all[1:]
}

// quiet is the headline when all is well. Some Events wait in the sink on purpose.
func (p *pipeline) quiet() string {
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
	out += " " + verb(s.Queue.Length.Value)
	if s.Queue.Oldest != nil {
		out += ", the oldest for " + s.Queue.Oldest.Text
	}
	return out
}

func verb(n string) string {
	if n == "1" {
		return "waits"
	}
	return "wait"
}

// sentence ends with one full stop.
func sentence(s string) string { return strings.TrimRight(s, ". :") + "." }
