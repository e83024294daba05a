package app

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

const routing = `apiVersion: config.eventd.io/v1alpha1
kind: EventdConfiguration
receivers:
- name: archive
  otlp: {endpoint: "collector:4317"}
- name: pager
  paused: true
  cloudEvents: {url: https://pager.example}
routes:
- name: team
  match: event.metadata.labels["team"] == "a"
- name: warnings
  match: event.type == "Warning"
  receivers: [pager]
- name: rest
  match: event.message.contains("image")
  receivers: [archive]
`

const intakeRules = `apiVersion: config.eventd.io/v1alpha1
kind: EventdConfiguration
intake:
- name: noise
  match: event.reason == "Pulled"
  drop: true
- name: probes
  match: event.type == "Warning"
  budget: {burst: 2, qps: 1/600}
  dryRun: true
`

// withMetrics has a throttle and metrics, too.
const withMetrics = routing + `  throttle: {interval: 5m}
metrics:
- name: images
  match: event.message.contains("image")
  labels: {namespace: metadata.namespace, object: involvedObject.name}
- name: teams
  match: event.metadata.labels["team"] == "a"
`

const (
	coreEvent = `{"apiVersion": "v1", "kind": "Event", "metadata": {"name": "web.1", "namespace": "shop"},
 "involvedObject": {"kind": "Pod", "name": "web"}, "type": "Warning", "reason": "BackOff", "message": "Back-off"}`
	eventsEvent = `apiVersion: events.k8s.io/v1
kind: Event
metadata: {name: "web.\e[1m2", namespace: shop}
regarding: {kind: Pod, name: web}
type: Normal
reason: Pulled
note: Pulled image
`
)

// write writes files to a directory, and returns it.
func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestConfigCheckShowsWhatAFileHasInIt(t *testing.T) {
	all, _, _ := strings.Cut(routing, "routes:")
	dir := write(t, map[string]string{"a.yaml": routing, "all.yaml": all, "in.yaml": intakeRules, "metrics.yaml": withMetrics})
	for file, want := range map[string]string{
		"in.yaml": "Intake rules: noise (drop), probes (budget, dry run)\nReceivers: none\nRoutes: none, so every receiver gets every Event\nMetrics: none\n",
		"a.yaml":  "Intake rules: none\nReceivers: archive (otlp), pager (cloudEvents, paused)\nRoutes: team, warnings, rest\nMetrics: none\n",
		"metrics.yaml": "Intake rules: none\nReceivers: archive (otlp), pager (cloudEvents, paused)\n" +
			"Routes: team, warnings, rest (throttled: one per 5m0s by metadata.namespace, involvedObject.uid, reason)\nMetrics: images, teams\n",
		"all.yaml": "Intake rules: none\nReceivers: archive (otlp), pager (cloudEvents, paused)\nRoutes: none, so every receiver gets every Event\nMetrics: none\n",
	} {
		if stdout, stderr, code := eventd(t, "config", "check", filepath.Join(dir, file)); code != 0 || stderr != "" || stdout != want {
			t.Errorf("%s: exit code %d, stdout %q, stderr %q", file, code, stdout, stderr)
		}
	}
}

func TestWrongConfigIsOneLinePerFieldAndExitCode1(t *testing.T) {
	dir := write(t, map[string]string{
		"fields.yaml":      strings.NewReplacer("collector:4317", "collector", "name: rest", "name: team").Replace(routing),
		"rules.yaml":       strings.NewReplacer("event.reason", "event.reaso", "1/600", "1/0").Replace(intakeRules),
		"expressions.yaml": strings.NewReplacer("event.type", "event.typ", "event.message", "event.mess").Replace(routing),
		"unknown.yaml":     strings.Replace(routing, "endpoint", "endpint", 1),
		"large.yaml":       strings.Repeat("#", 1<<20+1),
		"good.yaml":        routing,
		"noise.yaml":       intakeRules,
		"pod.yaml":         "apiVersion: v1\nkind: Pod\n",
		"list.yaml":        `{apiVersion: v1, kind: List, items: [{apiVersion: v1, kind: Pod}]}`,
		"old.yaml":         strings.Replace(eventsEvent, "io/v1", "io/v1beta1", 1),
		"typo.yaml":        strings.Replace(eventsEvent, "note", "message", 1),
		"empty.yaml":       "# nothing\n",
	})
	for _, test := range []struct{ args, want string }{
		{"check fields.yaml", `eventd: fields.yaml: receivers[0].otlp.endpoint: Invalid value: must be HOST:PORT
eventd: fields.yaml: routes[2].name: Duplicate value: "team"
`},
		{"check expressions.yaml", `eventd: expressions.yaml: routes[1].match: Invalid value: 1:6: undefined field 'typ'
eventd: expressions.yaml: routes[2].match: Invalid value: 1:6: undefined field 'mess'
`},
		{"check rules.yaml", "eventd: rules.yaml: intake[1].budget.qps: Invalid value: \"1/0\": must be a number, a fraction, or \"unlimited\"\n"},
		{"check unknown.yaml", "eventd: unknown.yaml: unknown field \"receivers[0].otlp.endpint\"\n"},
		{"check large.yaml", "eventd: large.yaml has more than 1048576 bytes\n"},
		{"check good.yaml --role=intake", "eventd: good.yaml: receivers, routes and metrics are for a process with --role=observe\n"},
		{"check noise.yaml --role=observe", "eventd: noise.yaml: intake: rules are for a process with --role=intake\n"},
		{"check good.yaml --role=both", "eventd: --role must be \"all\", \"intake\" or \"observe\", got \"both\"\n"},
		{"check none.yaml", "eventd: open none.yaml: no such file or directory\n"},
		{"check", "eventd: eventd config check takes one FILE, got 0 arguments\n"},
		{"", ""},
		{"verify", "eventd: unexpected argument \"verify\": eventd config has the commands check and test\n"},
		{"test good.yaml", "eventd: --event is required\n"},
		{"test unknown.yaml --event old.yaml", "eventd: unknown.yaml: unknown field \"receivers[0].otlp.endpint\"\n"},
		{"test good.yaml --event old.yaml --role=intake", "eventd: good.yaml: receivers, routes and metrics are for a process with --role=observe\n"},
		{"test good.yaml --event old.yaml", "eventd: old.yaml: apiVersion must be v1 or events.k8s.io/v1, got \"events.k8s.io/v1beta1\"\n"},
		{"test good.yaml --event pod.yaml", "eventd: pod.yaml: kind must be Event, got \"Pod\"\n"},
		{"test good.yaml --event list.yaml", "eventd: list.yaml: items[0]: kind must be Event, got \"Pod\"\n"},
		{"test good.yaml --event typo.yaml", "eventd: typo.yaml: unknown field \"message\"\n"},
		{"test good.yaml --event empty.yaml", "eventd: empty.yaml: the file has no Event\n"},
		{"test good.yaml --event old.yaml -o xml", "eventd: --output must be table or json, got \"xml\"\n"},
	} {
		t.Run(test.args, func(t *testing.T) {
			t.Chdir(dir)
			stdout, stderr, code := eventd(t, append([]string{"config"}, strings.Fields(test.args)...)...)
			if test.want == "" { // shows its commands
				if code != 0 || !strings.Contains(stdout, "check Check a file") {
					t.Errorf("exit code %d, stdout %q", code, stdout)
				}
				return
			}
			if code != 1 || stdout != "" || stderr != test.want {
				t.Errorf("exit code %d, stdout %q, stderr %q", code, stdout, stderr)
			}
		})
	}
}

func TestConfigTestShowsWhereEventsGoAndWhy(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": routing, "core.json": coreEvent, "events.yaml": eventsEvent})
	for file, want := range map[string]string{
		"core.json": `Event shop/web.1 (Pod web, Warning, BackOff)
ROUTE     RESULT
team      error: no such key: team
warnings  match
rest      not evaluated
RECEIVER  DELIVERED  WHY
archive   no         route warnings ends the evaluation
pager     yes        route warnings
`,
		"events.yaml": `Event "shop/web.\x1b[1m2 (Pod web, Normal, Pulled)"
ROUTE     RESULT
team      error: no such key: team
warnings  no match
rest      match
RECEIVER  DELIVERED  WHY
archive   yes        route rest
pager     no         route rest ends the evaluation
`,
	} {
		stdout, stderr, code := eventd(t, "config", "test", filepath.Join(dir, "a.yaml"), "--event", filepath.Join(dir, file))
		if diff := cmp.Diff(want, stdout); code != 0 || stderr != "" || diff != "" {
			t.Errorf("%s: exit code %d, stderr %q, %s", file, code, stderr, diff)
		}
	}
}

func TestConfigTestShowsThrottlesAndMetrics(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": withMetrics, "events.yaml": eventsEvent})
	const want = `Event "shop/web.\x1b[1m2 (Pod web, Normal, Pulled)"
ROUTE     RESULT
team      error: no such key: team
warnings  no match
rest      match
RECEIVER  DELIVERED  WHY
archive   yes        route rest, throttled: one per 5m0s by metadata.namespace, involvedObject.uid, reason
pager     no         route rest ends the evaluation
METRIC    RESULT
images    match: eventd_rule_images_total{namespace="shop", object="web"}
teams     error: no such key: team
`
	run := func(more ...string) string {
		t.Helper()
		stdout, stderr, code := eventd(t, append([]string{"config", "test", filepath.Join(dir, "a.yaml"), "--event", filepath.Join(dir, "events.yaml")}, more...)...)
		if code != 0 || stderr != "" {
			t.Errorf("exit code %d, stderr %q", code, stderr)
		}
		return stdout
	}
	if diff := cmp.Diff(want, run()); diff != "" {
		t.Error(diff)
	}
	var got []explanation
	if err := json.Unmarshal([]byte(run("-o", "json")), &got); err != nil {
		t.Fatal(err)
	}
	metrics := []metricLine{
		{Metric: "images", Result: "match", Series: `eventd_rule_images_total{namespace="shop", object="web"}`},
		{Metric: "teams", Result: "error", Error: "no such key: team"},
	}
	if diff := cmp.Diff(metrics, got[0].Metrics); diff != "" {
		t.Error(diff)
	}
	if throttle := got[0].Receivers[0].Throttle; throttle == nil || throttle.Interval.Duration != 5*time.Minute || len(throttle.By) != 3 {
		t.Errorf("the throttle is %v", throttle)
	}
}

func TestConfigTestTakesLists(t *testing.T) {
	typed := `{"apiVersion": "v1", "kind": "EventList", "items": [{"metadata": {"name": "web.1", "namespace": "shop"},
 "involvedObject": {"kind": "Pod", "name": "web"}, "type": "Warning", "reason": "BackOff"}]}`
	dir := write(t, map[string]string{
		"a.yaml":     routing,
		"list.json":  `{"apiVersion": "v1", "kind": "List", "items": [` + coreEvent + "," + coreEvent + `]}`,
		"typed.json": typed,
		"docs.yaml":  "---\n" + coreEvent + "\n---\n" + typed + "\n---\n",
		"watch.json": coreEvent + "\n" + coreEvent + coreEvent, // kubectl get events -o json --watch
		"lines.jsonl": strings.Repeat(`{"id":"u/1","clusterName":"a","observedTime":"2026-11-01T00:00:00Z","summarized":2,`+
			strings.TrimPrefix(strings.ReplaceAll(coreEvent, "\n", " "), "{")+"\n", 2), // of a jsonLines receiver
	})
	for file, count := range map[string]int{"list.json": 2, "typed.json": 1, "docs.yaml": 2, "watch.json": 3, "lines.jsonl": 2} {
		stdout, stderr, code := eventd(t, "config", "test", filepath.Join(dir, "a.yaml"), "--event", filepath.Join(dir, file), "-o", "json")
		var got []explanation
		if err := json.Unmarshal([]byte(stdout), &got); code != 0 || err != nil || len(got) != count {
			t.Errorf("%s: exit code %d, stderr %q, %d Events, %v", file, code, stderr, len(got), err)
			continue
		}
		want := explanation{
			Event:  "shop/web.1 (Pod web, Warning, BackOff)",
			Intake: []ruleLine{},
			Routes: []routeLine{{"team", "error", "no such key: team"}, {"warnings", "match", ""}, {"rest", "not_evaluated", ""}},
			Receivers: []receiverLine{{"archive", false, "warnings", "route warnings ends the evaluation", nil},
				{"pager", true, "warnings", "route warnings", nil}},
		}
		for _, e := range got {
			if diff := cmp.Diff(want, e); diff != "" {
				t.Error(diff)
			}
		}
	}
}

func TestConfigTestShowsWhatIntakeRulesDo(t *testing.T) {
	more := `- {name: teams, match: 'event.metadata.labels["team"] == "a"', budget: {burst: 1, qps: unlimited}}
- {name: all, match: "true", drop: true}
- {name: last, match: "true", drop: true, dryRun: true}
`
	const ofStored = `- {name: stored, match: 'event.metadata.uid != "" || event.metadata.creationTimestamp > timestamp("2020-01-01T00:00:00Z")', drop: true}
`
	stored := strings.Replace(coreEvent, `"metadata": {`, `"metadata": {"uid": "a", "creationTimestamp": "2026-01-01T00:00:00Z", `, 1)
	dir := write(t, map[string]string{
		"of-stored.yaml": intakeRules + ofStored, "stored.json": stored,
		"in.yaml": intakeRules, "more.yaml": intakeRules + more, "core.json": coreEvent, "events.yaml": eventsEvent,
		"both.yaml": intakeRules + "receivers:\n- {name: log, jsonLines: {}}\n",
	})
	for _, test := range []struct{ config, event, want string }{
		{"more.yaml", "core.json", `Event shop/web.1 (Pod web, Warning, BackOff)
INTAKE RULE  ACTION        RESULT
noise        drop          no match
probes       would budget  match
teams        budget        error: no such key: team
all          drop          match
last         would drop    not evaluated
`},
		// What is stored was reported without what the apiserver has set.
		{"of-stored.yaml", "stored.json", `Event shop/web.1 (Pod web, Warning, BackOff)
INTAKE RULE  ACTION        RESULT
noise        drop          no match
probes       would budget  match
stored       drop          no match
`},
		{"in.yaml", "events.yaml", `Event "shop/web.\x1b[1m2 (Pod web, Normal, Pulled)"
INTAKE RULE  ACTION        RESULT
noise        drop          match
probes       would budget  not evaluated
`},
		{"both.yaml", "core.json", `Event shop/web.1 (Pod web, Warning, BackOff)
INTAKE RULE  ACTION        RESULT
noise        drop          no match
probes       would budget  match
RECEIVER     DELIVERED     WHY
log          yes           there are no routes
`},
	} {
		stdout, stderr, code := eventd(t, "config", "test", filepath.Join(dir, test.config), "--event", filepath.Join(dir, test.event))
		if diff := cmp.Diff(test.want, stdout); code != 0 || stderr != "" || diff != "" {
			t.Errorf("%s, %s: exit code %d, stderr %q, %s", test.config, test.event, code, stderr, diff)
		}
	}
	stdout, _, _ := eventd(t, "config", "test", filepath.Join(dir, "in.yaml"), "--event", filepath.Join(dir, "core.json"), "-o", "json")
	var got []explanation
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || len(got) != 1 {
		t.Fatalf("%v: %s", err, stdout)
	}
	want := []ruleLine{{"noise", "drop", "no_match", ""}, {"probes", "would_budget", "match", ""}}
	if diff := cmp.Diff(want, got[0].Intake); diff != "" {
		t.Error(diff)
	}
}
