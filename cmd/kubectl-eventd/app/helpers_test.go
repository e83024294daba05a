package app_test

import (
	"bytes"
	"context"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/eventd/eventd/cmd/kubectl-eventd/app"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
	"github.com/eventd/eventd/test/testenv"
)

// cli runs the plugin against servers of a test.
type cli struct {
	t       *testing.T
	cluster *servertest.APIServer
	eventd  *servertest.Eventd
	flags   []string
}

func newCLI(t *testing.T, handler http.Handler) *cli {
	t.Helper()
	c := &cli{t: t, cluster: servertest.NewAPIServer(t), eventd: servertest.NewEventd(t, handler)}
	c.cluster.Lead(c.eventd)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testenv.WriteKubeconfig(file, c.cluster.REST()); err != nil {
		t.Fatal(err)
	}
	c.flags = []string{"--kubeconfig=" + file, "--cache-dir=" + t.TempDir()}
	return c
}

// output is what a command writes. It may be read while the command runs.
type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

// run runs a command line.
func (c *cli) run(args ...string) (stdout, stderr string, code int) {
	c.t.Helper()
	var out, errOut output
	code = c.runIn(c.t.Context(), &out, &errOut, args...)
	return out.String(), errOut.String(), code
}

func (c *cli) runIn(ctx context.Context, out, errOut *output, args ...string) int {
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: out, ErrOut: errOut}
	if args[0] == "__complete" {
		return app.Run(ctx, streams, append(append(args[:1:1], c.flags...), args[1:]...))
	}
	return app.Run(ctx, streams, append(args, c.flags...))
}

// remembered is what why and drops write to stderr when there is something to show.
const remembered = "The leader eventd-0_a remembers the last 30m.\n"

// mustRun returns what a command that must succeed writes to stdout.
func (c *cli) mustRun(line string) string {
	c.t.Helper()
	out, errOut, code := c.run(strings.Fields(line)...)
	want := ""
	if (strings.HasPrefix(line, "why") || strings.HasPrefix(line, "drops")) && !strings.Contains(line, "-o json") && !strings.Contains(line, "-o yaml") {
		want = remembered
	}
	if code != 0 || errOut != want {
		c.t.Fatalf("%s: exit code %d, stderr: %s", line, code, errOut)
	}
	return out
}

// lastQuery is that of the last request.
func (c *cli) lastQuery() string {
	c.t.Helper()
	requests := c.eventd.Requests()
	if len(requests) == 0 {
		c.t.Fatal("no request has arrived")
	}
	return requests[len(requests)-1].URL.Query().Encode()
}

func typeMeta(kind string) metav1.TypeMeta {
	return metav1.TypeMeta{Kind: kind, APIVersion: v1alpha1.GroupVersion.String()}
}

// ago is far enough that its age stays the same for a minute.
func ago(minutes int) metav1.MicroTime {
	return metav1.NewMicroTime(time.Now().Add(-time.Duration(minutes)*time.Minute - time.Second))
}

func value(v float64) v1alpha1.Figure { return v1alpha1.Figure{Metric: "m", Value: v} }

var web = v1alpha1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-0"}

// event is about a Pod, 20 minutes ago.
func event(id, message string) v1alpha1.TimelineItem {
	return v1alpha1.TimelineItem{
		ID: id, ResourceVersion: "71", Observed: ago(20), Namespace: "default", Name: "web-0.17", Regarding: web,
		Type: "Warning", Reason: "BackOff", Message: message, Reporter: "kubelet", Instance: "node-1", Count: 4, First: ago(40), Last: ago(20),
	}
}

func step(action string, change func(*v1alpha1.Step)) v1alpha1.Step {
	s := v1alpha1.Step{
		Time: ago(20), Action: action, Occurrences: 3, User: "system:node:node-1", Namespace: "default", Event: "web-0.17",
		Regarding: web, Type: "Warning", Reason: "BackOff", Message: "restarting", Reporter: "kubelet",
	}
	if change != nil {
		change(&s)
	}
	return s
}

func everything() servertest.Answers {
	rate := 12.34
	started, until := metav1.NewTime(ago(20).Time), metav1.NewMicroTime(time.Now().Add(90*time.Minute+50*time.Second))
	return servertest.Answers{
		"status": v1alpha1.PipelineStatus{
			TypeMeta: typeMeta("PipelineStatus"),
			Replica:  v1alpha1.Replica{Identity: "eventd-0_a", Role: "leader", Version: "v1.2.3", Started: &started},
			Leader:   &v1alpha1.Leader{Identity: "eventd-0_a", Since: ago(20), Handovers: 3},
			Followers: []v1alpha1.Replica{
				{Identity: "eventd-1_b", Role: "standby", Ready: new(bool), Reason: "no token", Follows: new(bool)},
				{Identity: "eventd-2_c", Role: "standby", Follows: new(true), UnknownSince: &started},
			},
			Apiserver: v1alpha1.Station{Name: "apiserver", Healthy: true},
			Stations: []v1alpha1.Station{{
				Name: "sink", Message: "namespace team-a hangs",
				Queue:   &v1alpha1.Queue{Length: value(17), OldestSeconds: new(value(2.5))},
				Figures: []v1alpha1.Figure{{Metric: "eventd_writes_total", Labels: map[string]string{"code": "200", "b": "c"}, Value: 1234567, PerSecond: &rate}, value(0)},
			}, {
				Name: "observer", Healthy: true,
				Queue: &v1alpha1.Queue{
					Length:   v1alpha1.Figure{Metric: "eventd_observer_buffer_bytes", Value: 512},
					Capacity: &v1alpha1.Figure{Metric: "eventd_observer_buffer_capacity_bytes", Value: 64 << 20},
				},
			}},
			Rules:     []v1alpha1.RuleStatus{{Kind: "route", Name: "quiet", Does: "drop", Receivers: []string{"loki"}, Matched: value(7), Failed: []v1alpha1.Figure{value(2)}}},
			Receivers: []v1alpha1.ReceiverStatus{{Name: "loki", State: "Retrying", LagSeconds: value(3), Pending: value(9), LastError: "503", FailedAt: &started, Cursor: "8"}, {Name: "file", State: "Waiting"}},
			History:   &v1alpha1.HistoryStatus{Versions: 12, Bytes: 2_000_001, MaxBytes: 64 << 20, Connected: true},
			Flags:     map[string]string{"config": "/etc/eventd"},
		},
		"top": v1alpha1.Top{
			TypeMeta: typeMeta("Top"), By: "object", Occurrences: 100,
			Items: []v1alpha1.TopItem{{Object: &web, Occurrences: 90, Error: 2, Writes: 5, Saved: 85}},
		},
		"timeline": v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), Items: []v1alpha1.TimelineItem{event("a/71", "restarting")}},
		"why": v1alpha1.Explanation{
			TypeMeta: typeMeta("Explanation"), Object: web, KnownSince: ago(30), Leader: "eventd-0_a",
			Steps: []v1alpha1.Step{
				step(v1alpha1.ActionDelivered, func(s *v1alpha1.Step) { s.Receiver, s.First = "loki", new(ago(40)) }),
				step(v1alpha1.ActionRecorded, nil),
				step(v1alpha1.ActionWouldBe, func(s *v1alpha1.Step) { s.Rule = "noise" }),
				step(v1alpha1.ActionDeferred, func(s *v1alpha1.Step) { s.Until, s.Cause = &until, "budget" }),
				step(v1alpha1.ActionDeferred, func(s *v1alpha1.Step) { s.Until, s.Cause = new(ago(19)), "spaced" }), // is over
				step(v1alpha1.ActionSettled, func(s *v1alpha1.Step) { s.Outcome, s.Cause, s.Detail = "dropped", "forbidden", "quota" }),
				step(v1alpha1.ActionUnrouted, func(s *v1alpha1.Step) { // within a second
					s.Receiver, s.Rule, s.First = "loki", "quiet", new(metav1.NewMicroTime(s.Time.Add(-time.Second)))
				}),
			},
			Events: []v1alpha1.TimelineItem{event("a/71", "restarting")},
		},
		"drops": v1alpha1.DropList{
			TypeMeta: typeMeta("DropList"), KnownSince: ago(30), Leader: "eventd-0_a",
			Items: []v1alpha1.Step{step(v1alpha1.ActionFiltered, func(s *v1alpha1.Step) { s.Rule = "noise" })},
		},
	}
}
