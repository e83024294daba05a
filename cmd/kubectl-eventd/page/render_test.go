package page_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/pagetest"
)

// views are all, with what is asked by them.
var views = []string{
	"/", "/top", "/top?by=reason", "/drops", "/drops?show=lost", "/drops?show=dry-run", "/object", "/object?kind=Pod&name=web&namespace=shop",
	"/tail", "/tail?include=events,steps&match=true", "/nothing",
}

func TestEveryFigureOfTheStatusIsShown(t *testing.T) {
	now := time.Now()
	for name, status := range map[string]*v1alpha1.PipelineStatus{
		"busy": pagetest.BusyStatus(now), "empty": pagetest.EmptyStatus(now), "failing": pagetest.FailingStatus(now), "all": withAll(now),
	} {
		t.Run(name, func(t *testing.T) {
			b := pagetest.NewBackend()
			b.Set("status", status)
			_, body := serve(t, b).get(t, "/")
			want, got := figuresOf(status), figuresIn(t, body)
			if h := status.History; h != nil {
				want["eventd_history_versions{}"], want["eventd_history_bytes{}"], want["eventd_history_capacity_bytes{}"] = fmt.Sprint(h.Versions), fmt.Sprint(h.Bytes), fmt.Sprint(h.MaxBytes)
			}
			for series, value := range want {
				if got[series] != value {
					t.Errorf("%s is %q on the page, not %q", series, got[series], value)
				}
			}
			for series := range got {
				if _, ok := want[series]; !ok {
					t.Errorf("%s is only on the page", series)
				}
			}
			if len(want) < 15 {
				t.Errorf("only %d figures are compared", len(want))
			}
		})
	}
}

// withAll has what a status may have: a station of the history, one that is not known, values at the edge.
func withAll(now time.Time) *v1alpha1.PipelineStatus {
	s := pagetest.BusyStatus(now)
	queue := &v1alpha1.Queue{Length: v1alpha1.Figure{Metric: "eventd_history_queue", Value: 3}, OldestSeconds: &v1alpha1.Figure{Metric: "eventd_history_oldest_seconds"}}
	var figures []v1alpha1.Figure
	for i := range 20 {
		figures = append(figures, v1alpha1.Figure{Metric: fmt.Sprintf("eventd_history_%d_total", i), Value: 1e15 + float64(i), Labels: map[string]string{"quoted": `"\`}})
	}
	s.Stations = append(s.Stations[:5], v1alpha1.Station{Name: "history", Healthy: true, Queue: queue, Figures: figures},
		v1alpha1.Station{Name: "new", Figures: []v1alpha1.Figure{{Metric: "eventd_new_ratio", Value: 0.123456789}}})
	return s
}

// figuresOf returns the value and the rate of each figure in an object, by its series.
func figuresOf(object any) map[string]string {
	out := map[string]string{}
	var walk func(reflect.Value)
	walk = func(v reflect.Value) {
		if f, ok := v.Interface().(v1alpha1.Figure); ok {
			var pairs []string
			for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
				pairs = append(pairs, name+"="+strconv.Quote(f.Labels[name]))
			}
			value := exact(f.Value)
			if f.PerSecond != nil {
				value += " " + exact(*f.PerSecond)
			}
			out[f.Metric+"{"+strings.Join(pairs, ",")+"}"] = value
			return
		}
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				walk(v.Elem())
			}
		case reflect.Slice:
			for i := range v.Len() {
				walk(v.Index(i))
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if v.Type().Field(i).IsExported() {
					walk(v.Field(i))
				}
			}
		}
	}
	walk(reflect.ValueOf(object))
	return out
}

func TestSumsAreThoseOfAllSeries(t *testing.T) {
	b := pagetest.Busy(time.Now())
	_, body := serve(t, b).get(t, "/")
	got := map[string]string{}
	for n := range parse(t, body) {
		if metric := attr(n, "data-sum"); metric != "" {
			got[metric] = attr(n, "value") + " " + attr(n, "data-per-second")
		}
	}
	want := map[string]string{
		"eventd_intake_requests_total": "4812904 1243.7", "eventd_sink_requests_total": "1293305 230.6",
		"eventd_correlator_decisions_total": "4812904 1243.62", "eventd_occurrences_settled_total": "4721625 1217.1",
	}
	for metric, sum := range want {
		if value, rate, _ := strings.Cut(got[metric], " "); value+" "+rounded(t, rate) != sum {
			t.Errorf("%s is %s, not %s", metric, got[metric], sum)
		}
	}
	if len(got) != len(want) {
		t.Errorf("sums: %v", got)
	}
}

// rounded is without the error of adding floats.
func rounded(t *testing.T, s string) string {
	t.Helper()
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return exact(math.Round(v*1e6) / 1e6)
}

func exact(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

// figuresIn returns the same of a page.
func figuresIn(t *testing.T, body string) map[string]string {
	out := map[string]string{}
	for n := range parse(t, body) {
		if metric := attr(n, "data-metric"); metric != "" {
			out[metric+"{"+attr(n, "data-labels")+"}"] = strings.TrimSpace(attr(n, "value") + " " + attr(n, "data-per-second"))
		}
	}
	return out
}

func TestTheHeadlineSaysWhatIsWrong(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		change func(*v1alpha1.PipelineStatus)
		want   []string
	}{
		"nothing": {func(s *v1alpha1.PipelineStatus) { *s = *pagetest.EmptyStatus(now) }, []string{"Ready. No client has reported anything yet.", "point them at it"}},
		"busy":    {func(*v1alpha1.PipelineStatus) {}, []string{"All is well. Sink: 1,204 series wait, 1,181 of them deferred, the oldest for 42 s."}},
		"deferred": {func(s *v1alpha1.PipelineStatus) {
			sink := &s.Stations[3]
			sink.Queue.Length.Value = 1180
		}, []string{"All is well. Sink: 1,180 series are deferred, the oldest for 42 s."}},
		"nothing deferred": {func(s *v1alpha1.PipelineStatus) {
			sink := &s.Stations[3]
			sink.Queue.Length.Value, sink.Figures[6].Value = 1, 0
		}, []string{"All is well. Sink: 1 series waits, the oldest for 42 s."}},
		"alone": {func(s *v1alpha1.PipelineStatus) { s.Followers = nil }, []string{"Nothing fails. No other replica follows"}},
		"sink": {func(s *v1alpha1.PipelineStatus) {
			s.Stations[3].Healthy, s.Stations[3].Message = false, "waits for the apiserver"
		}, []string{"Sink: waits for the apiserver. 1,204 series wait, 1,181 of them deferred, the oldest for 42 s."}},
		"no leader": {func(s *v1alpha1.PipelineStatus) { s.Leader = nil }, []string{"No replica leads: nothing is recorded or written until one does."}},
		"no leader of observe": {func(s *v1alpha1.PipelineStatus) {
			s.Observe = &v1alpha1.Process{Replica: v1alpha1.Replica{Role: "standby"}, Flags: map[string]string{"role": "observe"}}
		}, []string{"No replica leads: nothing is delivered until one does."}},
		"not ready": {func(s *v1alpha1.PipelineStatus) { s.Replica.Ready, s.Replica.Reason = new(false), "no lease." }, []string{"eventd-6f7c9d5b8-x2m4q is not ready: no lease."}},
		"silent": {func(s *v1alpha1.PipelineStatus) {
			f := &s.Followers[0]
			f.Ready, f.Follows, f.UnknownSince = nil, new(false), new(metav1.NewTime(now.Add(-time.Minute)))
		}, []string{"eventd-6f7c9d5b8-p8wzk has not reported to the leader since", "silent, last heard of", "does not hold what is pending"}},
		"receiver":      {func(s *v1alpha1.PipelineStatus) { s.Receivers[0].State, s.Receivers[0].LastError = "hanging", "" }, []string{"The receiver loki is hanging, 200 ms behind."}},
		"configuration": {func(s *v1alpha1.PipelineStatus) { s.Configuration.Error = "line 3" }, []string{"the former one stays in force. runbook line 3"}},
		"history":       {func(s *v1alpha1.PipelineStatus) { s.History.Connected = false }, []string{"The history has no watch"}},
		"several":       {func(s *v1alpha1.PipelineStatus) { *s = *pagetest.FailingStatus(now) }, []string{"Sink: waits", "Apiserver: no answer for 48 s", "audit-stream is backing off, 15 min behind"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := pagetest.NewBackend()
			status := pagetest.BusyStatus(now)
			test.change(status)
			b.Set("status", status)
			_, body := serve(t, b).get(t, "/")
			wantWords(t, strings.ReplaceAll(body, "\u00a0", " "), test.want...)
		})
	}
}

// Each problem leads to a runbook that exists.
func TestProblemsLeadToTheirRunbooks(t *testing.T) {
	now := time.Now()
	status := pagetest.FailingStatus(now)
	status.Leader, status.Replica.Ready = nil, new(bool)
	for i := range status.Stations {
		status.Stations[i].Healthy = false
	}
	b := pagetest.NewBackend()
	b.Set("status", status)
	_, body := serve(t, b).get(t, "/")
	links := 0
	for n := range parse(t, body) {
		rest, found := strings.CutPrefix(attr(n, "href"), "https://github.com/eventd/eventd/blob/main/")
		if !found {
			continue
		}
		links++
		file, anchor, _ := strings.Cut(rest, "#")
		text, err := os.ReadFile("../../../" + file)
		if err != nil || !strings.Contains(strings.ToLower(string(text)), "\n## "+anchor+"\n") {
			t.Errorf("there is no %s: %v", rest, err)
		}
	}
	if problems := strings.Count(words(t, body), "runbook"); links < 10 || links != problems {
		t.Errorf("%d of %d problems have a runbook", links, problems)
	}
}

func TestProblemsAreSaidInWords(t *testing.T) {
	top := v1alpha1.GroupVersion.WithResource("top").GroupResource()
	for name, test := range map[string]struct {
		path, resource string
		err            error
		code           int
		want           []string
	}{
		"all namespaces":   {"/top", "top", apierrors.NewForbidden(top, "", fmt.Errorf("the reason")), 403, []string{"You may not see this", "Enter a namespace", "the reason"}},
		"one namespace":    {"/top?namespace=shop,cart", "top", apierrors.NewForbidden(top, "", nil), 403, []string{"list Events in shop, cart"}},
		"status":           {"/?namespace=shop", "status", apierrors.NewForbidden(top, "", nil), 403, []string{"The status needs the right to list Events in all namespaces"}},
		"no trail":         {"/drops", "drops", apierrors.NewNotFound(top, ""), 404, []string{"--trail-bytes"}},
		"no history":       {"/tail", "timeline", apierrors.NewServiceUnavailable("no history"), 503, []string{"Perhaps no replica leads", "no history"}},
		"nothing observes": {"/tail", "timeline", fmt.Errorf("%w: there is no Lease", describe.ErrNothingObserves), 404, []string{"Nothing observes here.", "Install deploy/observe.", "there is no Lease"}},
		"no history kept":  {"/tail", "timeline", apierrors.NewNotFound(top, ""), 404, []string{"With --history-bytes, a process that observes keeps"}},
		"old":              {"/", "status", apierrors.NewNotFound(top, ""), 404, []string{"Update eventd"}},
		"no leader":        {"/", "status", apierrors.NewServiceUnavailable("no leader"), 503, []string{"cannot answer this now", "no leader"}},
		"credentials":      {"/", "status", apierrors.NewUnauthorized("expired"), 403, []string{"does not accept your credentials"}},
		"too many":         {"/", "status", apierrors.NewTooManyRequests("slow down", 1), 503, []string{"too many requests"}},
		"late":             {"/", "status", fmt.Errorf("get: %w", context.DeadlineExceeded), 504, []string{"has not answered in time"}},
		"away":             {"/", "status", fmt.Errorf("connection \x1b[31mrefused <b>"), 502, []string{"cannot be reached", "connection ␛[31mrefused <b>"}},
		"wrong parameter":  {"/top?by=x", "top", apierrors.NewBadRequest("by: x is not known"), 400, []string{"x is not known"}},
		"both halves":      {"/object?kind=Pod&name=web", "why", apierrors.NewNotFound(top, ""), 200, []string{"--trail-bytes", "No Event about it is known"}},
	} {
		t.Run(name, func(t *testing.T) {
			b := pagetest.Empty(time.Now())
			b.Set(test.resource, test.err)
			code, body := serve(t, b).get(t, test.path)
			if code != test.code {
				t.Errorf("answered %d, not %d", code, test.code)
			}
			wantWords(t, body, test.want...)
		})
	}
}

// Where an answer lacks what one role knows, the view says so, and not what only holds if it is all.
func TestViewsSayWhichRoleIsMissing(t *testing.T) {
	const missing = "What one role knows is not known: connection refused"
	now := time.Now()
	observe := func(change func(*v1alpha1.PipelineStatus)) v1alpha1.PipelineStatus {
		s := v1alpha1.PipelineStatus{
			Replica: v1alpha1.Replica{Identity: "observe-0", Role: "leader"}, Leader: &v1alpha1.Leader{Identity: "observe-0"},
			Flags: map[string]string{"role": "observe"}, Apiserver: v1alpha1.Station{Healthy: true}, Missing: missing,
			Stations: []v1alpha1.Station{{Name: "history", Healthy: true}}, Receivers: []v1alpha1.ReceiverStatus{{Name: "loki", State: "streaming"}},
		}
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		path, resource string
		answer         any
		want, wantNot  []string
		runbook        string
	}{
		"top": {"/top", "top", v1alpha1.Top{By: "object", OnlyReported: true, Missing: missing}, []string{"Missing: " + missing}, []string{"--history-bytes"}, ""},
		"why": {"/object?kind=Pod&name=web", "why", v1alpha1.Explanation{Missing: missing, Leader: "a"}, []string{"Missing: " + missing}, []string{"has had no report"}, ""},
		"why of both": {"/object?kind=Pod&name=web", "why", v1alpha1.Explanation{KnownSince: metav1.NewMicroTime(now), Observe: &v1alpha1.Memory{KnownSince: metav1.NewMicroTime(now.Add(-time.Hour))}},
			[]string{", what is observed since "}, []string{"Missing"}, ""},
		"status without the intake": {"/", "status", observe(func(*v1alpha1.PipelineStatus) {}),
			[]string{missing + ". runbook", "what clients report Not known: see above.", "loki streaming"}, []string{"point them at it", "Apiserver", "Intake"}, "intakeabsent"},
		"a follower that only observes": {"/", "status", observe(func(s *v1alpha1.PipelineStatus) {
			s.Missing, s.Followers = "", []v1alpha1.Replica{{Identity: "observe-1", Ready: new(bool)}}
		}),
			[]string{"observe-1 is not ready"}, []string{missing}, "observeabsent"},
		"status without observe": {"/", "status", v1alpha1.PipelineStatus{Leader: &v1alpha1.Leader{Identity: "a"}, Missing: missing, Stations: []v1alpha1.Station{{Name: "intake", Healthy: true}}, Apiserver: v1alpha1.Station{Healthy: true}},
			[]string{missing + ". runbook", "whoever wrote it Not known: see above.", "Apiserver healthy"}, []string{"point them at it", "--history-bytes"}, "observeabsent"},
		"status of both": {"/", "status", observe(func(s *v1alpha1.PipelineStatus) { s.Missing, s.Flags = "", nil }), []string{"point them at it", "Apiserver"}, []string{missing}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := pagetest.Empty(now)
			b.Set(test.resource, test.answer)
			_, body := serve(t, b).get(t, test.path)
			wantWords(t, body, test.want...)
			if !strings.Contains(body, `runbooks.md#eventd`+test.runbook+`"`) && test.runbook != "" {
				t.Errorf("there is no link to the runbook %s", test.runbook)
			}
			for _, not := range test.wantNot {
				if text := words(t, body); strings.Contains(text, not) {
					t.Errorf("it says %q: %s", not, text)
				}
			}
		})
	}
}

func TestAllViewsOfAllStatesRender(t *testing.T) {
	for name, state := range pagetest.Each {
		v := serve(t, state(time.Now()))
		for _, path := range views {
			code, body := v.get(t, path)
			if code >= 500 && name != "failing" {
				t.Errorf("%s: %s is answered %d", name, path, code)
			}
			if !strings.Contains(body, "</html>") || strings.Contains(body, "ZgotmplZ") {
				t.Errorf("%s: %s is not whole:\n%s", name, path, body)
			}
			wantHarmless(t, body)
			ids := map[string]bool{}
			for n := range parse(t, body) {
				if id := attr(n, "id"); id != "" && ids[id] {
					t.Errorf("%s: %s has the id %s twice", name, path, id)
				} else {
					ids[id] = true
				}
			}
		}
	}
}

func TestTheViewsAskForWhatIsEntered(t *testing.T) {
	for path, want := range map[string]string{
		"/?namespace=a":                              "status?", // eventd refuses parameters that a resource does not have
		"/top?by=reporter&namespace=a,b+c":           "top?by=reporter&limit=50&namespace=a&namespace=b&namespace=c",
		"/top":                                       "top?by=object&limit=50",
		"/drops?namespace=a":                         "drops?limit=200&namespace=a",
		"/object?kind=Pod&name=web&namespace=a":      "why?kind=Pod&limit=200&name=web&namespace=a",
		"/object?q=pod/web&namespace=a":              "timeline?kind=Pod&limit=200&name=web&namespace=a",
		"/object?q=+web+":                            "why?limit=200&name=web",
		"/tail?namespace=a&match=event.count+%3E+10": "timeline?limit=50&namespace=a&versions=all",
	} {
		b := pagetest.Busy(time.Now())
		if code, _ := serve(t, b).get(t, path); code != http.StatusOK {
			t.Errorf("%s is answered %d", path, code)
		}
		if asked := b.Asked(); !slices.Contains(asked, want) {
			t.Errorf("%s asks for %q, not for %s", path, asked, want)
		}
	}
}

// Options.Kind knows the cluster. What it does not know is as it was typed.
func TestASearchFindsKindsByTheirShortNames(t *testing.T) {
	b := pagetest.Empty(time.Now())
	v := serveWith(t, page.Options{Backend: b, Kind: func(typed string) (string, string) {
		if typed == "rs" {
			return "apps", "ReplicaSet"
		}
		return "", ""
	}})
	for typed, kind := range map[string]string{"rs": "group=apps&kind=ReplicaSet", "widget": "kind=Widget", "widget.example.com": "group=example.com&kind=Widget"} {
		v.get(t, "/object?q="+typed+"/web")
		if want, asked := "why?"+kind+"&limit=200&name=web", b.Asked(); !slices.Contains(asked, want) {
			t.Errorf("%s asks for %q, not for %s", typed, asked, want)
		}
	}
}

func TestDropsCanBeSelected(t *testing.T) {
	v := serve(t, pagetest.Busy(time.Now()))
	for show, test := range map[string]struct{ has, hasNot string }{
		"lost": {"Dropped forbidden", "by the rule"}, "filtered": {"Filtered by the rule probes", "Dropped forbidden"}, "dry-run": {"Would be filtered by the rule image-pulls", "Dropped forbidden"},
	} {
		_, body := v.get(t, "/drops?show="+show)
		wantWords(t, body, test.has)
		if strings.Contains(words(t, body), test.hasNot) {
			t.Errorf("%s shows %q", show, test.hasNot)
		}
	}
	// 3 + 4 + 5 of three objects
	_, body := v.get(t, "/drops")
	wantWords(t, body, "12 Dropped forbidden 3 objects", "7,224 Filtered by the rule probes 3 objects")
}

// Steps are in the order in which they began, and the last one goes on.
func TestTheLastStepIsTheOneThatWasDoneLast(t *testing.T) {
	b, now := pagetest.Busy(time.Now()), time.Now()
	at := func(ago time.Duration) metav1.MicroTime { return metav1.NewMicroTime(now.Add(-ago)) }
	b.Set("why", v1alpha1.Explanation{Steps: []v1alpha1.Step{
		{Action: v1alpha1.ActionRecorded, First: new(at(time.Hour)), Time: at(10 * time.Minute)},
		{Action: v1alpha1.ActionDelivered, First: new(at(time.Hour)), Time: at(10 * time.Minute)},
		{Action: v1alpha1.ActionSettled, Outcome: "created", Time: at(time.Hour)},
	}})
	_, body := serve(t, b).get(t, "/object?kind=Pod&name=web")
	if _, last, _ := strings.Cut(words(t, body), " Last "); !strings.HasPrefix(last, "10 min ago Delivered ") {
		t.Errorf("the last one is %.60q", last)
	}
}

func TestStepsAreGroupedBySeries(t *testing.T) {
	b := pagetest.Busy(time.Now())
	pod := v1alpha1.ObjectReference{Kind: "Pod", Name: "web"}
	step := func(reason, action string) v1alpha1.Step {
		return v1alpha1.Step{Action: action, Outcome: "created", Reason: reason, Regarding: pod}
	}
	b.Set("why", v1alpha1.Explanation{Steps: []v1alpha1.Step{
		step("First", v1alpha1.ActionRecorded), step("Second", v1alpha1.ActionRecorded), step("First", v1alpha1.ActionSettled), step("Second", v1alpha1.ActionSettled),
	}})
	_, body := serve(t, b).get(t, "/object?kind=Pod&name=web")
	_, why, _ := strings.Cut(words(t, body), "what eventd did with reports")
	if want := "First an unknown time Recorded an unknown time Stored as a new Event Second an unknown time Recorded an unknown time Stored as a new Event"; !strings.Contains(why, want) {
		t.Errorf("it says %s", why)
	}
	// Containers of a Pod are series of their own, and one object.
	var steps []v1alpha1.Step
	var events []v1alpha1.TimelineItem
	for _, container := range []string{"app", "sidecar"} {
		s := step("Created", v1alpha1.ActionSettled)
		s.Outcome, s.Message, s.Regarding.FieldPath = "dropped", "Container created", "spec.containers{"+container+"}"
		steps = append(steps, s)
		events = append(events, v1alpha1.TimelineItem{Reason: s.Reason, Message: s.Message, Regarding: s.Regarding})
	}
	b.Set("why", v1alpha1.Explanation{Steps: steps})
	b.Set("timeline", v1alpha1.Timeline{Items: events})
	b.Set("drops", v1alpha1.DropList{Items: steps})
	_, body = serve(t, b).get(t, "/object?kind=Pod&name=web")
	wantWords(t, body, "Created spec.containers{app}: Container created an unknown time Created spec.containers{sidecar}: Container created Why",
		"Created spec.containers{app}: Container created an unknown time Dropped Created spec.containers{sidecar}: Container created an unknown time Dropped")
	_, body = serve(t, b).get(t, "/drops")
	wantWords(t, body, "Dropped 1 object")
}

// slow answers nothing before it may.
type slow struct {
	page.Backend
	began chan struct{}
}

func (s slow) Get(ctx context.Context, _ string, _ url.Values, _ any) error {
	s.began <- struct{}{}
	<-ctx.Done()
	return ctx.Err()
}

func TestAQueryEndsWithThePage(t *testing.T) {
	b := slow{began: make(chan struct{})}
	v := start(t, b)
	ended := make(chan error, 1)
	go func() {
		response, err := v.Get(v.address)
		if err == nil {
			response.Body.Close()
		}
		ended <- err
	}()
	<-b.began
	v.stop()
	if err := <-ended; err != nil {
		t.Errorf("the connection is closed, and the query was not ended: %v", err)
	}
}

// The types of the API are what the backend decodes, so a page of one version reads the answers of another.
func TestAnswersOfANewerEventdAreShown(t *testing.T) {
	b := pagetest.NewBackend()
	b.Set("status", json.RawMessage(`{"time":null,"replica":{"identity":"a","role":"new","more":1},"apiserver":{"name":"apiserver","healthy":true},"stations":null,"receivers":[{"name":"r","state":"new"}]}`))
	code, body := serve(t, b).get(t, "/")
	if code != http.StatusOK {
		t.Errorf("answered %d", code)
	}
	wantWords(t, body, "No replica leads", "receiver r")
}
