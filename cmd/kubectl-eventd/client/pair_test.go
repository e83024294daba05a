package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/servertest"
)

// answering is an eventd of a role, as it answers directly. It forbids what it does not serve, as to callers who have
// rights to Events only, but through the apiserver.
type answering struct {
	servertest.Answers
	group string
}

func (a answering) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	resource, query := path.Base(req.URL.Path), req.URL.Query()
	_, served := a.Answers[resource]
	if _, history := a.Answers["timeline"]; resource == "tail" && query.Get(v1alpha1.ParamInclude) != "steps" && !history {
		served = false
	}
	switch {
	case !served && req.Header.Get("X-By") == "":
		status := servertest.Failure(http.StatusForbidden, metav1.StatusReasonForbidden, resource+"."+a.group+" is forbidden")
		status.Details = &metav1.StatusDetails{Group: a.group, Kind: resource}
		servertest.WriteJSON(w, http.StatusForbidden, status)
	case !served:
		http.NotFound(w, req)
	case query.Get(v1alpha1.ParamWatch) == "":
		a.Answers.ServeHTTP(w, req)
	default:
		servertest.Frame(w, "ADDED", a.Answers[resource])
		<-req.Context().Done()
	}
}

func at(second int64) metav1.MicroTime { return metav1.NewMicroTime(time.Unix(second, 0).UTC()) }

var (
	ofIntake = servertest.Answers{
		"status": v1alpha1.PipelineStatus{
			Replica: v1alpha1.Replica{Identity: "intake"}, Flags: map[string]string{"role": "intake"},
			Stations: []v1alpha1.Station{{Name: "intake"}, {Name: "sink"}}, Rules: []v1alpha1.RuleStatus{{Name: "drop"}},
		},
		"why": v1alpha1.Explanation{Role: "intake", Leader: "intake", KnownSince: at(10), Steps: []v1alpha1.Step{{Time: at(20), Action: "recorded"}, {Time: at(40), Action: "merged"}}},
		"top": v1alpha1.Top{Role: "intake", By: "intake", Occurrences: 13, Items: []v1alpha1.TopItem{
			{Reason: "Dropped", Occurrences: 9, Saved: 9}, {Reason: "Both", Occurrences: 4, Error: 1, Writes: 1, Saved: 3}}},
		"drops": v1alpha1.DropList{Leader: "intake"},
		"tail":  v1alpha1.TailItem{Step: &v1alpha1.Step{Action: "recorded"}},
	}
	ofObserve = servertest.Answers{
		"status": v1alpha1.PipelineStatus{
			Replica: v1alpha1.Replica{Identity: "observe"}, Flags: map[string]string{"role": "observe"},
			Apiserver: v1alpha1.Station{Healthy: true, Figures: []v1alpha1.Figure{{Metric: "eventd_sink_requests_total"}}},
			Stations:  []v1alpha1.Station{{Name: "intake"}, {Name: "history"}}, Rules: []v1alpha1.RuleStatus{{Name: "route"}},
			Receivers: []v1alpha1.ReceiverStatus{{Name: "loki"}}, History: &v1alpha1.HistoryStatus{Versions: 7},
		},
		"why": v1alpha1.Explanation{Role: "observe", Leader: "observe", KnownSince: at(15), Truncated: true, Steps: []v1alpha1.Step{{Time: at(30), Action: "delivered"}}, Events: []v1alpha1.TimelineItem{{ID: "a"}}},
		"top": v1alpha1.Top{By: "observe", Occurrences: 9, Items: []v1alpha1.TopItem{
			{Reason: "Observed", Occurrences: 7}, {Reason: "Both", Occurrences: 2, Writes: 2}, {Reason: "Rare", Occurrences: 1}}},
		"drops":    v1alpha1.DropList{Leader: "observe"}, // which knows of none
		"timeline": v1alpha1.Timeline{Items: []v1alpha1.TimelineItem{{ID: "observe"}}},
		"tail":     v1alpha1.TailItem{ResourceVersion: "5", Event: &v1alpha1.TimelineItem{ID: "observe"}},
	}
)

// atMost3 is fewer than the keys that both have.
var atMost3 = url.Values{v1alpha1.ParamLimit: {"3"}}

// inOne is a process that does both.
func inOne() servertest.Answers {
	all := maps.Clone(ofObserve)
	for resource, answer := range map[string]any{
		"status": v1alpha1.PipelineStatus{Replica: v1alpha1.Replica{Identity: "both"}, Stations: []v1alpha1.Station{{Name: "intake"}, {Name: "history"}}},
		"why":    v1alpha1.Explanation{Role: "all", Steps: []v1alpha1.Step{{Action: "recorded"}, {Action: "delivered"}}},
		"top":    v1alpha1.Top{Role: "all", By: "both"},
		"drops":  v1alpha1.DropList{Leader: "both"},
	} {
		all[resource] = answer
	}
	return all
}

// What an answer says, of all resources.
type said struct {
	status      v1alpha1.PipelineStatus
	why         v1alpha1.Explanation
	top         v1alpha1.Top
	timeline    v1alpha1.Timeline
	drops       v1alpha1.DropList
	tail        []string
	tailMissing string
}

// summary is what a table can hold.
func (s *said) summary() string {
	var parts []string
	add := func(name string, values ...string) { parts = append(parts, name+"="+strings.Join(values, "+")) }
	names := []string{s.status.Replica.Identity}
	if s.status.Observe != nil {
		names = append(names, s.status.Observe.Replica.Identity)
	}
	add("replicas", names...)
	names = nil
	for _, station := range describe.Stations(&s.status) {
		names = append(names, station.Name)
		for _, figure := range station.Figures {
			names = append(names, figure.Metric)
		}
	}
	for _, rule := range s.status.Rules {
		names = append(names, rule.Name)
	}
	for _, receiver := range s.status.Receivers {
		names = append(names, receiver.Name)
	}
	add("shown", names...)
	names = nil
	for _, step := range s.why.Steps {
		names = append(names, step.Action)
	}
	add("why", names...)
	top := s.top.By
	for _, i := range s.top.Items {
		top += fmt.Sprintf(",%s/%d/%d/%d/%d", i.Reason, i.Occurrences, i.Error, i.Writes, i.Saved)
	}
	add("top", top)
	add("drops", s.drops.Leader)
	names = nil
	for _, item := range s.timeline.Items {
		names = append(names, item.ID)
	}
	add("timeline", names...)
	slices.Sort(s.tail)
	add("tail", s.tail...)
	return strings.Join(parts, " ")
}

// What one role answers, if it answers alone.
const (
	intakeAlone  = "replicas=intake shown=intake+sink+apiserver+drop why=recorded+merged top=intake,Dropped/9/0/0/9,Both/4/1/1/3 drops=intake timeline= tail=recorded"
	observeAlone = "replicas=observe shown=history+route+loki why=delivered top=observe,Observed/7/0/0/0,Both/2/0/2/0,Rare/1/0/0/0 drops= timeline=observe tail=observe"
	bothInOne    = "replicas=both shown=intake+history+apiserver why=recorded+delivered top=both drops=both timeline=observe tail=observe"
)

// pairScene has a server for each role.
type pairScene struct {
	cluster         *servertest.APIServer
	intake, observe *servertest.Eventd
	hanging         string // the path of the role that does not answer
}

// Whoever asks sees what both roles know, or what one of them knows, and which one is missing, and why.
func TestBothRolesAnswerAsOne(t *testing.T) {
	const (
		noObserve, noIntake = "What is observed and delivered is not known: ", "What is reported is not known: "
		direct              = client.ConnectAuto
		noHolder            = "no eventd leads at the moment: the Lease kube-system/%s has no holder"
		refused             = "connecting to eventd, which holds the Lease kube-system/%s: dial tcp"
		forbidden           = "reading eventd's Lease: leases %q is forbidden"
	)
	for _, test := range []struct {
		name, connect   string
		intake, observe servertest.Answers
		prepare         func(*pairScene)
		want, missing   string // of every answer that lacks something
		timelineErr     string
	}{
		{name: "both", connect: direct, intake: ofIntake, observe: ofObserve,
			want: "replicas=intake+observe shown=intake+sink+history+apiserver+drop+route+loki why=recorded+delivered+merged top=observe,Dropped/9/0/0/9,Observed/7/0/0/0,Both/4/1/2/3 drops=intake timeline=observe tail=observe+recorded"},
		{name: "both", connect: client.ConnectAPIServer, intake: ofIntake, observe: ofObserve,
			want: "replicas=intake+observe shown=intake+sink+history+apiserver+drop+route+loki why=recorded+delivered+merged top=observe,Dropped/9/0/0/9,Observed/7/0/0/0,Both/4/1/2/3 drops=intake timeline=observe tail=observe+recorded"},
		{name: "no observe", connect: direct, intake: ofIntake,
			want: intakeAlone, missing: noObserve + "there is no Lease kube-system/eventd-observe", timelineErr: "nothing observes here: there is no Lease kube-system/eventd-observe"},
		{name: "no observe", connect: client.ConnectAPIServer, intake: ofIntake,
			want: intakeAlone, missing: noObserve + "the server could not find", timelineErr: "the server could not find"},
		{name: "observe without a holder", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.cluster.Release("eventd-observe") },
			want:    intakeAlone, missing: noObserve + fmt.Sprintf(noHolder, "eventd-observe"), timelineErr: fmt.Sprintf(noHolder, "eventd-observe")},
		{name: "observe refuses", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.observe.Close() },
			want:    intakeAlone, missing: noObserve + fmt.Sprintf(refused, "eventd-observe"), timelineErr: fmt.Sprintf(refused, "eventd-observe")},
		{name: "observe forbidden", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.cluster.Forbid("eventd-observe") },
			want:    intakeAlone, missing: noObserve + fmt.Sprintf(forbidden, "eventd-observe"), timelineErr: fmt.Sprintf(forbidden, "eventd-observe")},
		{name: "observe hangs", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.hanging = v1alpha1.ObserveGroupName },
			want:    intakeAlone, missing: noObserve, timelineErr: "querying observe.eventd.io: no answer within 4s (--request-timeout)"},
		{name: "no intake", connect: direct, observe: ofObserve,
			want: observeAlone, missing: noIntake + "there is no Lease kube-system/eventd"},
		{name: "no intake", connect: client.ConnectAPIServer, observe: ofObserve,
			want: observeAlone, missing: noIntake + "the server could not find"},
		{name: "intake without a holder", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.cluster.Release("eventd") },
			want:    observeAlone, missing: noIntake + fmt.Sprintf(noHolder, "eventd")},
		{name: "intake refuses", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.intake.Close() },
			want:    observeAlone, missing: noIntake + fmt.Sprintf(refused, "eventd")},
		{name: "intake forbidden", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.cluster.Forbid("eventd") },
			want:    observeAlone, missing: noIntake + fmt.Sprintf(forbidden, "eventd")},
		{name: "intake hangs", connect: direct, intake: ofIntake, observe: ofObserve,
			prepare: func(s *pairScene) { s.hanging = v1alpha1.GroupName },
			want:    observeAlone, missing: noIntake},
		{name: "one for both", connect: direct, intake: inOne(), want: bothInOne},
		{name: "one for both", connect: client.ConnectAPIServer, intake: inOne(), want: bothInOne},
		{name: "one for both, observe forbidden", connect: direct, intake: inOne(),
			prepare: func(s *pairScene) { s.cluster.Forbid("eventd-observe") }, want: bothInOne},
	} {
		t.Run(test.name+", "+test.connect, func(t *testing.T) {
			t.Parallel()
			eventd := newPair(t, test.connect, test.intake, test.observe, test.prepare)
			eventd.SetPatience(500*time.Millisecond, time.Minute)
			once, watched := said{}, said{}
			var all sync.WaitGroup
			for resource, into := range map[string]any{"status": &once.status, "why": &once.why, "top": &once.top} {
				all.Go(func() {
					if err := eventd.Get(t.Context(), resource, atMost3, into); err != nil {
						t.Errorf("%s: %v", resource, err)
					}
				})
			}
			err := eventd.Get(t.Context(), "timeline", nil, &once.timeline)
			all.Wait()
			if (err != nil) != (test.timelineErr != "") || err != nil && !strings.HasPrefix(err.Error(), test.timelineErr) {
				t.Errorf("timeline: %v; want %q", err, test.timelineErr)
			}
			stream, tailErr := eventd.Watch(t.Context(), "tail", nil)
			if tailErr == nil {
				_ = stream.Close()
			}
			if (tailErr != nil) != (test.timelineErr != "") {
				t.Errorf("a tail of Events: %v; want %q", tailErr, test.timelineErr)
			}
			hasDrops := !strings.Contains(test.want, "drops= ")
			if err := eventd.Get(t.Context(), "drops", nil, &once.drops); (err == nil) != hasDrops {
				t.Errorf("drops: %v", err)
			}
			watches := map[string]any{"status": &watched.status, "top": &watched.top}
			if hasDrops {
				watches["drops"] = &watched.drops
			}
			for resource, into := range watches {
				watchOnce(t, eventd, resource, 1, func(raw []byte) {
					if err := json.Unmarshal(raw, into); err != nil {
						t.Error(err)
					}
				})
			}
			frames := 1
			if test.missing != "" || test.name == "both" {
				frames = 2
			}
			watchOnce(t, eventd, "tail", frames, func(raw []byte) {
				var item v1alpha1.TailItem
				if err := json.Unmarshal(raw, &item); err != nil {
					t.Error(err)
				}
				switch {
				case item.Missing != "":
					watched.tailMissing = item.Missing
				case item.Step != nil:
					watched.tail = append(watched.tail, item.Step.Action)
				default:
					watched.tail = append(watched.tail, item.Event.ID)
				}
			})
			watched.why, watched.timeline, once.tail = once.why, once.timeline, watched.tail
			for how, got := range map[string]*said{"once": &once, "watched": &watched} {
				if got.summary() != test.want {
					t.Errorf("%s:\ngot  %s\nwant %s", how, got.summary(), test.want)
				}
			}
			missing := map[string]string{
				"status": once.status.Missing, "status, watched": watched.status.Missing, "why": once.why.Missing, "tail": watched.tailMissing,
				"top": once.top.Missing, "top, watched": watched.top.Missing,
			}
			for what, got := range missing {
				if !strings.HasPrefix(got, test.missing) || (got == "") != (test.missing == "") {
					t.Errorf("%s: missing is %q, not %q", what, got, test.missing)
				}
			}
		})
	}
}

// newPair returns a Pair, and prepares what it finds.
func newPair(t *testing.T, connect string, intake, observe servertest.Answers, prepare func(*pairScene)) *client.Pair {
	t.Helper()
	s := &pairScene{cluster: servertest.NewAPIServer(t)}
	start := func(answers servertest.Answers, group string) *servertest.Eventd {
		handler := answering{answers, group}
		eventd := servertest.NewEventd(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			if s.hanging == group {
				<-req.Context().Done()
				return
			}
			handler.ServeHTTP(w, req)
		}))
		through := servertest.NewEventd(t, http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			req.Header.Set("X-By", "apiserver")
			handler.ServeHTTP(w, req)
		}))
		s.cluster.Aggregate(group, through)
		return eventd
	}
	if intake != nil {
		s.intake = start(intake, v1alpha1.GroupName)
		s.cluster.Lead(s.intake)
	}
	if observe != nil {
		s.observe = start(observe, v1alpha1.ObserveGroupName)
		s.cluster.Observe(s.observe)
	}
	if prepare != nil {
		prepare(s)
	}
	options, config := client.DefaultOptions(), s.cluster.REST()
	options.Connect, config.Timeout = connect, 4*time.Second
	pair, err := client.NewPair(config, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pair.Close)
	return pair
}

// An explanation of both keeps how far back each leader remembers.
func TestAnExplanationOfBothHasBothMemories(t *testing.T) {
	var why v1alpha1.Explanation
	if err := newPair(t, client.ConnectAuto, ofIntake, ofObserve, nil).Get(t.Context(), "why", nil, &why); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.Memory{Leader: "observe", KnownSince: at(15)}
	if got := why.Observe; why.Leader != "intake" || !why.KnownSince.Equal(new(at(10))) || got == nil || got.Leader != want.Leader || !got.KnownSince.Equal(&want.KnownSince) {
		t.Errorf("got %s since %s, and %+v", why.Leader, why.KnownSince, why.Observe)
	}
}

// A step is not before what caused it, though that goes on, or the clock of the other role is slow.
func TestStepsAreBehindTheirCauses(t *testing.T) {
	step := func(action, event string, first, last int64) v1alpha1.Step {
		s := v1alpha1.Step{Action: action, Event: event, Time: at(last), Cause: fmt.Sprint(event, " ", action)}
		if first != last {
			s.First = new(at(first))
		}
		return s
	}
	// As eventd has them: by when they were done last.
	intake := v1alpha1.Explanation{Role: "intake", Steps: []v1alpha1.Step{
		step("settled", "a", 101, 101), step("deferred", "a", 103, 103), step("recorded", "a", 100, 110), step("merged", "a", 102, 110), step("settled", "a", 115, 115),
		step("recorded", "b", 120, 120), step("settled", "b", 121, 121), step("settled", "c", 150, 150),
	}}
	observe := v1alpha1.Explanation{Role: "observe", Steps: []v1alpha1.Step{
		step("delivered", "a", 99, 130), step("not_delivered", "b", 120, 120), step("delivered", "c", 140, 140),
	}}
	all := v1alpha1.Explanation{Role: "all", Steps: append(slices.Clone(observe.Steps), intake.Steps...)}
	want := []string{
		"a recorded", "a settled", "a delivered", "a merged", "a deferred", "a settled", "b recorded", "b settled", "b not_delivered",
		"c delivered", "c settled", // by too much for a clock: of another version
	}
	for name, eventd := range map[string]*client.Pair{
		"two roles": newPair(t, client.ConnectAuto, servertest.Answers{"why": intake}, servertest.Answers{"why": observe}, nil),
		"one":       newPair(t, client.ConnectAuto, servertest.Answers{"why": all}, nil, nil),
	} {
		var why v1alpha1.Explanation
		if err := eventd.Get(t.Context(), "why", nil, &why); err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range why.Steps {
			got = append(got, s.Cause)
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: got %q, not %q", name, got, want)
		}
	}
}

// One that hangs is not waited for as long as a request may take, and its connection is not used again.
func TestOneThatHangsDoesNotHoldUpTheAnswerOfTheOther(t *testing.T) {
	t.Parallel()
	var scene *pairScene
	eventd := newPair(t, client.ConnectAuto, ofIntake, ofObserve, func(s *pairScene) {
		scene, s.hanging = s, v1alpha1.ObserveGroupName
		s.cluster.Renew("eventd-observe", time.Now().Add(-47*time.Minute))
	})
	ask := func() (why v1alpha1.Explanation) {
		if err := eventd.Get(t.Context(), "why", nil, &why); err != nil {
			t.Fatal(err)
		}
		return why
	}
	if want, got := "What is observed and delivered is not known: querying observe.eventd.io, whose Lease was last renewed 47m ago: no answer within 2s of that of the other role", ask().Missing; got != want {
		t.Errorf("missing is %q, not %q", got, want)
	}
	scene.cluster.Observe(servertest.NewEventd(t, ofObserve))
	// A request that was given up takes a moment to leave its connection.
	await.Within(t, 15*time.Second, "an answer of the next leader", func() bool { return ask().Missing == "" })
}

// Of two that do not answer, the error names both, unless one is not installed.
func TestAnErrorNamesBothRoles(t *testing.T) {
	for name, test := range map[string]struct {
		prepare      func(*pairScene)
		want, others []string
	}{
		"no holders": {func(s *pairScene) { s.cluster.Release("eventd"); s.cluster.Release("eventd-observe") },
			[]string{"kube-system/eventd has no holder", "kube-system/eventd-observe has no holder"}, []string{"deadline"}},
		"one refuses, one has no holder": {func(s *pairScene) { s.intake.Close(); s.cluster.Release("eventd-observe") },
			[]string{"the Lease kube-system/eventd: dial", "kube-system/eventd-observe has no holder"}, nil},
		"one refuses, one may not be known": {func(s *pairScene) { s.intake.Close(); s.cluster.Forbid("eventd-observe") },
			[]string{"the Lease kube-system/eventd: dial"}, []string{"observe"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			eventd := newPair(t, client.ConnectAuto, ofIntake, ofObserve, test.prepare)
			ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // as the page has one
			defer cancel()
			err := eventd.Get(ctx, "status", nil, new(json.RawMessage))
			for _, want := range test.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("got %v, not %q", err, want)
				}
			}
			for _, other := range test.others {
				if err != nil && strings.Contains(err.Error(), other) {
					t.Errorf("%v has %q", err, other)
				}
			}
		})
	}
}

// watchOnce reads so many frames of a watch.
func watchOnce(t *testing.T, eventd *client.Pair, resource string, frames int, handle func(raw []byte)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := eventd.Watch(ctx, resource, url.Values{v1alpha1.ParamInclude: {"events,steps"}, v1alpha1.ParamLimit: atMost3[v1alpha1.ParamLimit]})
	if err != nil {
		t.Fatalf("%s: %v", resource, err)
	}
	defer stream.Close()
	for range frames {
		frame, err := stream.Next()
		if err != nil {
			t.Fatalf("%s: %v", resource, err)
		}
		handle(frame.Object.Raw)
	}
}
