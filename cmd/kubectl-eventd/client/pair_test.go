package client_test

import (
	"context"
	"encoding/json"
	"net/http"
	"path"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
)

// ofBoth are the answers of the two roles. A watch sends one frame, and stays open.
func ofBoth(answers servertest.Answers) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Query().Get(v1alpha1.ParamWatch) == "" {
			answers.ServeHTTP(w, req)
			return
		}
		servertest.Frame(w, "ADDED", answers[path.Base(req.URL.Path)])
		<-req.Context().Done()
	})
}

func at(second int64) metav1.MicroTime { return metav1.NewMicroTime(time.Unix(second, 0).UTC()) }

var (
	ofIntake = servertest.Answers{
		"status": v1alpha1.PipelineStatus{
			Replica: v1alpha1.Replica{Identity: "intake"}, Flags: map[string]string{"role": "intake"},
			Stations: []v1alpha1.Station{{Name: "intake"}, {Name: "sink"}}, Rules: []v1alpha1.RuleStatus{{Name: "drop"}},
		},
		"why":   v1alpha1.Explanation{KnownSince: at(10), Steps: []v1alpha1.Step{{Time: at(20), Action: "recorded"}, {Time: at(40), Action: "merged"}}},
		"top":   v1alpha1.Top{By: "intake"},
		"drops": v1alpha1.DropList{Leader: "intake"},
		"tail":  v1alpha1.TailItem{Step: &v1alpha1.Step{Action: "recorded"}},
	}
	ofObserve = servertest.Answers{
		"status": v1alpha1.PipelineStatus{
			Replica: v1alpha1.Replica{Identity: "observe"}, Flags: map[string]string{"role": "observe"},
			Stations: []v1alpha1.Station{{Name: "intake"}, {Name: "history"}}, Rules: []v1alpha1.RuleStatus{{Name: "route"}},
			Receivers: []v1alpha1.ReceiverStatus{{Name: "loki"}}, History: &v1alpha1.HistoryStatus{Versions: 7},
		},
		"why":      v1alpha1.Explanation{KnownSince: at(15), Truncated: true, Steps: []v1alpha1.Step{{Time: at(30), Action: "delivered"}}, Events: []v1alpha1.TimelineItem{{ID: "a"}}},
		"top":      v1alpha1.Top{By: "observe"},
		"drops":    v1alpha1.DropList{Leader: "observe"}, // which knows of none
		"timeline": v1alpha1.Timeline{Items: []v1alpha1.TimelineItem{{ID: "observe"}}},
		"tail":     v1alpha1.TailItem{ResourceVersion: "5", Event: &v1alpha1.TimelineItem{ID: "observe"}},
	}
)

// What an answer says, of all resources.
type said struct {
	status               v1alpha1.PipelineStatus
	why                  v1alpha1.Explanation
	top                  v1alpha1.Top
	timeline             v1alpha1.Timeline
	drops                v1alpha1.DropList
	tail                 []string
	timelineErr, dropErr error
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
	for _, station := range s.status.Stations {
		names = append(names, station.Name)
	}
	for _, rule := range s.status.Rules {
		names = append(names, rule.Name)
	}
	for _, receiver := range s.status.Receivers {
		names = append(names, receiver.Name)
	}
	add("shown", names...)
	missing, _, _ := strings.Cut(s.status.Missing, ":")
	add("missing", missing)
	names = nil
	for _, step := range s.why.Steps {
		names = append(names, step.Action)
	}
	add("why", names...)
	add("top", s.top.By)
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

// Whoever asks sees what both roles know, or what one of them knows, and which one is missing.
func TestBothRolesAnswerAsOne(t *testing.T) {
	for name, test := range map[string]struct {
		intake, observe servertest.Answers
		want            string
	}{
		"both": {ofIntake, ofObserve,
			"replicas=intake+observe shown=intake+sink+history+drop+route+loki missing= why=recorded+delivered+merged top=observe drops=intake timeline=observe tail=observe+recorded"},
		"no observe": {ofIntake, nil,
			"replicas=intake shown=intake+sink+drop missing=Nothing is observed or delivered why=recorded+merged top=intake drops=intake timeline= tail=recorded"},
		"no intake": {nil, ofObserve,
			"replicas=observe shown=intake+history+route+loki missing=No reports are taken why=delivered top=observe drops= timeline=observe tail=observe"},
	} {
		for _, connect := range []string{client.ConnectAuto, client.ConnectAPIServer} {
			t.Run(name+", "+connect, func(t *testing.T) {
				cluster, options := servertest.NewAPIServer(t), client.DefaultOptions()
				options.Connect = connect
				if test.intake != nil {
					eventd := servertest.NewEventd(t, ofBoth(test.intake))
					cluster.Lead(eventd)
					cluster.Aggregate(v1alpha1.GroupName, eventd)
				}
				if test.observe != nil {
					eventd := servertest.NewEventd(t, ofBoth(test.observe))
					cluster.Observe(eventd)
					cluster.Aggregate(v1alpha1.ObserveGroupName, eventd)
				}
				eventd, err := client.NewPair(cluster.REST(), options)
				if err != nil {
					t.Fatal(err)
				}
				defer eventd.Close()
				once, watched := said{}, said{}
				for resource, into := range map[string]any{"status": &once.status, "why": &once.why, "top": &once.top} {
					if err := eventd.Get(t.Context(), resource, nil, into); err != nil {
						t.Fatalf("%s: %v", resource, err)
					}
				}
				once.timelineErr = eventd.Get(t.Context(), "timeline", nil, &once.timeline)
				once.dropErr = eventd.Get(t.Context(), "drops", nil, &once.drops)
				if (once.timelineErr == nil) != (test.observe != nil) || (once.dropErr == nil) != (test.intake != nil) {
					t.Errorf("timeline: %v; drops: %v", once.timelineErr, once.dropErr)
				}
				watches := map[string]any{"status": &watched.status, "top": &watched.top}
				if test.intake != nil {
					watches["drops"] = &watched.drops
				}
				for resource, into := range watches {
					watchOnce(t, eventd, resource, 1, func(raw []byte) {
						if err := json.Unmarshal(raw, into); err != nil {
							t.Error(err)
						}
					})
				}
				frames := 2
				if test.intake == nil || test.observe == nil {
					frames = 1
				}
				watchOnce(t, eventd, "tail", frames, func(raw []byte) {
					var item v1alpha1.TailItem
					if err := json.Unmarshal(raw, &item); err != nil {
						t.Error(err)
					}
					if item.Step != nil {
						watched.tail = append(watched.tail, item.Step.Action)
					} else {
						watched.tail = append(watched.tail, item.Event.ID)
					}
				})
				watched.why, watched.timeline, once.tail = once.why, once.timeline, watched.tail
				for how, got := range map[string]*said{"once": &once, "watched": &watched} {
					if got.summary() != test.want {
						t.Errorf("%s:\ngot  %s\nwant %s", how, got.summary(), test.want)
					}
				}
			})
		}
	}
}

// watchOnce reads so many frames of a watch.
func watchOnce(t *testing.T, eventd *client.Pair, resource string, frames int, handle func(raw []byte)) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := eventd.Watch(ctx, resource, map[string][]string{v1alpha1.ParamInclude: {"events,steps"}})
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
