package page

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// listLimit is how many items a view has. More would not be read.
const listLimit = "200"

func (s *server) status(w http.ResponseWriter, r *http.Request) {
	f := newFrame("status", "Status", r)
	ctx, cancel := context.WithTimeout(r.Context(), s.last.timeout())
	defer cancel()
	var answer v1alpha1.PipelineStatus
	f.Problem = s.get(r.WithContext(ctx), "status", nil, &answer)
	if view := s.last.view(answer, f.Problem); view != nil {
		f.Content, f.Kept = view, f.Problem != nil
	}
	f.render(w, r)
}

// lastStatus is what the status shows, as unknown, while eventd cannot answer.
type lastStatus struct {
	mu     sync.Mutex
	status *v1alpha1.PipelineStatus
	led    time.Time
}

// timeout is how long to wait for a status: if there is one to show, less than the script waits for the view.
func (l *lastStatus) timeout() time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.status == nil {
		return queryTimeout
	}
	return statusTimeout
}

// view returns the view of an answer, or of the last one if there is a problem, or nil. What is refused is forgotten.
func (l *lastStatus) view(answer v1alpha1.PipelineStatus, p *problem) *pipeline {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case p == nil:
		l.status = &answer
		if answer.Leader != nil {
			l.led = answer.Time.Time
		}
	case p.Code < http.StatusInternalServerError:
		l.status = nil
	}
	if l.status == nil {
		return nil
	}
	shown := *l.status
	view := newStatus(&shown, l.led)
	if p != nil {
		view.unanswered(p)
	}
	return view
}

// ranking is the view of Top.
type ranking struct {
	*v1alpha1.Top
	By, Seconds string
	// Choices are the values of By.
	Choices []string
	Rows    []ranked
}

type ranked struct {
	v1alpha1.TopItem
	Key string
	Bar *bar
}

func (s *server) top(w http.ResponseWriter, r *http.Request) {
	f := newFrame("top", "Top", r)
	by := r.URL.Query().Get(v1alpha1.ParamBy)
	if by == "" {
		by = "object"
	}
	out := &ranking{Top: &v1alpha1.Top{}, By: text(by), Choices: []string{"object", "reason", "namespace", "reporter"}}
	f.Problem = s.get(r, "top", query(r, v1alpha1.ParamBy, by, v1alpha1.ParamLimit, "50"), out.Top)
	out.Seconds = duration(out.Until.Sub(out.Since.Time).Seconds())
	for _, item := range out.Items {
		row := ranked{TopItem: item, Key: item.Reason + item.Namespace + item.Reporter}
		if item.Object != nil {
			row.Key = item.Object.Namespace + " " + item.Object.String()
		}
		row.Bar = newBar(float64(item.Occurrences), float64(out.Occurrences), "share of all occurrences")
		if row.Bar != nil {
			row.Bar.Full = false // a share, and no limit
		}
		out.Rows = append(out.Rows, row)
	}
	f.Content = out
	f.render(w, r)
}

// dropped is the view of DropList.
type dropped struct {
	*v1alpha1.DropList
	// Show and Rule select.
	Show, Rule string
	Sums       []sum
}

// sum has the drops of one kind.
type sum struct {
	Step        describe.Description
	Occurrences int64
	Objects     int
}

// shown says which steps the parts of the view have.
var shown = map[string]func(v1alpha1.Step) bool{
	"":         func(v1alpha1.Step) bool { return true },
	"lost":     func(s v1alpha1.Step) bool { return s.Action == v1alpha1.ActionSettled && s.Outcome != "filtered" },
	"filtered": func(s v1alpha1.Step) bool { return s.Action == v1alpha1.ActionFiltered || s.Outcome == "filtered" },
	"dry-run":  func(s v1alpha1.Step) bool { return s.Action == v1alpha1.ActionWouldBe },
}

func (s *server) drops(w http.ResponseWriter, r *http.Request) {
	f := newFrame("drops", "Drops and rules", r)
	out := &dropped{DropList: &v1alpha1.DropList{}, Show: r.URL.Query().Get("show"), Rule: text(r.URL.Query().Get("rule"))}
	f.Problem = s.get(r, "drops", query(r, v1alpha1.ParamLimit, listLimit), out.DropList)
	if accept := shown[out.Show]; accept != nil {
		out.Items = slices.DeleteFunc(out.Items, func(s v1alpha1.Step) bool { return !accept(s) })
	}
	if out.Rule != "" {
		out.Items = slices.DeleteFunc(out.Items, func(s v1alpha1.Step) bool { return s.Rule != out.Rule })
	}
	out.Sums = sums(out.Items)
	f.Content = out
	f.render(w, r)
}

// sums adds the steps up by what was done and why, the largest first.
func sums(steps []v1alpha1.Step) (out []sum) {
	objects := map[describe.Description]map[v1alpha1.ObjectReference]bool{}
	at := map[describe.Description]int{}
	for _, s := range steps {
		key := describe.Step(s)
		key.Detail = ""
		if objects[key] == nil {
			objects[key], at[key] = map[v1alpha1.ObjectReference]bool{}, len(out)
			out = append(out, sum{Step: key})
		}
		s.Regarding.FieldPath = "" // containers of one Pod are one object
		objects[key][s.Regarding] = true
		out[at[key]].Occurrences += s.Occurrences
		out[at[key]].Objects = len(objects[key])
	}
	slices.SortStableFunc(out, func(a, b sum) int { return int(b.Occurrences - a.Occurrences) })
	return out
}

// found is the view of an object. Each half has its own problem.
type found struct {
	Object            v1alpha1.ObjectReference
	Timeline          v1alpha1.Timeline
	Why               v1alpha1.Explanation
	NoTimeline, NoWhy *problem
	// Runs are the steps, Last what was done last, the answer in short.
	Runs []run
	Last *v1alpha1.Step
}

// run has the steps about a series, in their order. Runs are in the order of their first steps.
type run struct {
	Series v1alpha1.Step
	Steps  []v1alpha1.Step
}

func runs(steps []v1alpha1.Step) (out []run) {
	at := map[v1alpha1.Step]int{}
	for _, s := range steps {
		i, known := at[series(s)]
		if !known {
			i = len(out)
			at[series(s)] = i
			out = append(out, run{Series: s})
		}
		out[i].Steps = append(out[i].Steps, s)
		if out[i].Series.Event == "" {
			out[i].Series.Event = s.Event // it is not known before the correlator
		}
	}
	return out
}

// series has what tells the series of a step from others.
func series(s v1alpha1.Step) v1alpha1.Step {
	return v1alpha1.Step{Regarding: s.Regarding, Type: s.Type, Reason: s.Reason, Message: s.Message, Reporter: s.Reporter}
}

func (s *server) object(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if entered := strings.TrimSpace(q.Get("q")); entered != "" {
		kind, name, both := strings.Cut(entered, "/")
		if !both {
			kind, name = "", entered
		}
		group, kind := s.asKind(kind)
		to := objectLink(v1alpha1.ObjectReference{Group: group, Kind: kind, Name: name, Namespace: strings.Join(namespaces(r), " ")})
		http.Redirect(w, r, to, http.StatusSeeOther)
		return
	}
	out := &found{Object: v1alpha1.ObjectReference{Group: q.Get(v1alpha1.ParamGroup), Kind: q.Get(v1alpha1.ParamKind), Name: q.Get(v1alpha1.ParamName)}}
	asked := query(r, v1alpha1.ParamGroup, out.Object.Group, v1alpha1.ParamKind, out.Object.Kind, v1alpha1.ParamName, out.Object.Name, v1alpha1.ParamLimit, listLimit)
	clean(out)
	f := newFrame("object", out.Object.String(), r)
	f.Search, f.Content = f.Title, out
	if f.Title == "" {
		f.Title, f.Content = "Find an object", nil
		f.render(w, r)
		return
	}
	var both sync.WaitGroup
	both.Go(func() { out.NoTimeline = s.get(r, "timeline", asked, &out.Timeline) })
	both.Go(func() { out.NoWhy = s.get(r, "why", asked, &out.Why) })
	both.Wait()
	if out.NoTimeline != nil && out.NoWhy != nil && out.NoTimeline.Code == out.NoWhy.Code && out.NoTimeline.Code != http.StatusNotFound {
		f.Problem = out.NoTimeline // one and the same
	}
	out.Runs = runs(out.Why.Steps)
	for i := range out.Why.Steps { // by when they began
		if s := &out.Why.Steps[i]; out.Last == nil || !s.Time.Before(&out.Last.Time) {
			out.Last = s
		}
	}
	f.render(w, r)
}

// asKind returns the API group and the kind as the API writes it, Pod for po and pod. Events have kinds, not the names of resources. A kind
// that the cluster does not know may have been removed, and is as it was typed.
func (s *server) asKind(typed string) (group, kind string) {
	if typed == "" {
		return "", ""
	}
	if s.kind != nil {
		if group, kind = s.kind(typed); kind != "" {
			return group, kind
		}
	}
	kind, group, _ = strings.Cut(typed, ".")
	first := min(1, len(kind))
	return group, strings.ToUpper(kind[:first]) + kind[first:]
}

// following is the view of a tail: what was last, and from where the stream goes on.
type following struct {
	Match, Include string
	Items          []v1alpha1.TailItem
	// Stream is its address.
	Stream string
	// NoHistory says why there is nothing from before.
	NoHistory *problem
}

func (s *server) tail(w http.ResponseWriter, r *http.Request) {
	f := newFrame("tail", "Tail", r)
	out := &following{Match: text(r.URL.Query().Get(v1alpha1.ParamMatch)), Include: r.URL.Query().Get(v1alpha1.ParamInclude)}
	f.Content = out
	var before v1alpha1.Timeline
	asked := query(r, v1alpha1.ParamLimit, "50", v1alpha1.ParamVersions, "all")
	switch out.NoHistory = s.get(r, "timeline", asked, &before); {
	case out.NoHistory == nil && out.Match == "":
		for _, item := range slices.Backward(before.Items) { // newest first
			out.Items = append(out.Items, v1alpha1.TailItem{ResourceVersion: item.ResourceVersion, Event: &item})
		}
	case out.NoHistory != nil && !strings.Contains(out.Include, "steps"):
		f.Problem, out.NoHistory = out.NoHistory, nil // nothing can be followed
	}
	if f.Problem == nil {
		out.Stream = link("/tail/stream", v1alpha1.ParamNamespace, f.Namespaces, v1alpha1.ParamMatch, r.URL.Query().Get(v1alpha1.ParamMatch),
			v1alpha1.ParamInclude, out.Include, v1alpha1.ParamResourceVersion, before.ResourceVersion)
	}
	f.render(w, r)
}
