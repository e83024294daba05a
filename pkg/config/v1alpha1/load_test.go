package v1alpha1

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"sigs.k8s.io/yaml"
)

const head = "apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n"

// readAll returns testdata/all.yaml, which has every field of the file.
func readAll(t testing.TB) string {
	t.Helper()
	data, err := os.ReadFile("testdata/all.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

func TestDefaultsAreThoseOfTheComments(t *testing.T) {
	got, err := Load([]byte(head + `
receivers:
- name: otlp
  otlp: {endpoint: "collector:4317"}
- name: file
  jsonLines: {path: /var/log/events}
- name: stdout
  jsonLines: {}
routes:
- name: quiet
  throttle: {interval: 5m}
metrics:
- name: events
`))
	if err != nil {
		t.Fatal(err)
	}
	if by := got.Routes[0].Throttle.By; !slices.Equal(by, []string{"metadata.namespace", "involvedObject.uid", "reason"}) {
		t.Errorf("the throttle is by %q", by)
	}
	if n := *got.Metrics[0].MaxSeries; n != 500 {
		t.Errorf("a metric has at most %d series", n)
	}
	receiver := func(r Receiver) Receiver {
		r.From, r.BatchSize, r.Timeout = "Now", new(int32(512)), &metav1.Duration{Duration: 10 * time.Second}
		return r
	}
	want := []Receiver{
		receiver(Receiver{Name: "otlp", OTLP: &OTLP{Protocol: "grpc", Endpoint: "collector:4317", Compression: "gzip"}}),
		receiver(Receiver{Name: "file", JSONLines: &JSONLines{Path: "/var/log/events"}}),
		receiver(Receiver{Name: "stdout", JSONLines: &JSONLines{}}),
	}
	if diff := cmp.Diff(want, got.Receivers); diff != "" {
		t.Error(diff)
	}
}

// A file is full of items that are empty.
func TestErrorsOfAFileAreLimited(t *testing.T) {
	_, err := Load([]byte(head + "intake:\n" + strings.Repeat("- {}\n", 150_000)))
	var all utilerrors.Aggregate
	if !errors.As(err, &all) || len(all.Errors()) != maxErrors+1 || !strings.Contains(err.Error(), "intake[1].name: Required value") ||
		!strings.HasSuffix(err.Error(), "and 449901 more errors]") {
		t.Errorf("%.1000v", err)
	}
}

func TestYAMLAndJSONAreTheSame(t *testing.T) {
	text := readAll(t)
	fromYAML, err := Load([]byte("# A comment\n---\n" + text))
	if err != nil {
		t.Fatal(err)
	}
	asJSON, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	fromJSON, err := Load(asJSON)
	if diff := cmp.Diff(fromYAML, fromJSON); err != nil || diff != "" {
		t.Error(err, diff)
	}
}

func TestFilesThatAreAcceptedAsDestinations(t *testing.T) {
	if _, err := Load([]byte(head + `
receivers:
- {name: a, jsonLines: {path: /var/log/events.1}}
- {name: b, jsonLines: {path: /var/log/events.2}}
- {name: c, jsonLines: {path: /var/log/events.2.jsonl}}
- {name: d, jsonLines: {path: /dev/shm/events}}
- {name: e, jsonLines: {path: /device/events}}
- {name: f, jsonLines: {}}
`)); err != nil {
		t.Error(err)
	}
}

// Each case spoils one place of a valid file.
func TestWrongFieldIsNamed(t *testing.T) {
	valid := readAll(t)
	for _, test := range []struct{ old, new, want string }{
		{"config.eventd.io/v1alpha1", "config.eventd.io/v1", `apiVersion: Unsupported value: "config.eventd.io/v1"`},
		{"EventdConfiguration", "Event", `kind: Unsupported value: "Event"`},
		{"receivers:\n", "sinks: []\nreceivers:\n", `unknown field "sinks"`},
		{"paused: true", "Paused: true", `unknown field "receivers[0].Paused"`},
		{"paused: true", "paused: true\n  paused: false", `key "paused" already set`},
		{"batchSize: 100", "batchSize: many", "receivers.batchSize of type int32"},
		{"name: noise", "name: Noise", "intake[0].name: Invalid"},
		{"name: probes", "name: noise", "intake[1].name: Duplicate"},
		{`match: event.reason == "PolicyApplied"`, `match: ""`, "intake[0].match: Required"},
		{"  drop: true\n", "", "intake[0]: Required value: needs one of drop and budget"},
		{"  dryRun: true", "  drop: true", "intake[1]: Forbidden"},
		{"burst: 3", "burst: 0", "intake[1].budget.burst: Invalid value: 0"},
		{"burst: 3", "burst: 3000000000", "intake.budget.burst of type int32"},
		{"qps: 1/600", `qps: ""`, "intake[1].budget.qps: Required"},
		{"qps: 1/600", "qps: 0", `intake[1].budget.qps: Invalid value: "0": must be greater than 0`},
		{"qps: 1/600", "qps: -1/3", `intake[1].budget.qps: Invalid value: "-1/3"`},
		{"qps: 1/600", "qps: 1/0", `intake[1].budget.qps: Invalid value: "1/0": must be a number, a fraction, or "unlimited"`},
		{"qps: 1/600", "qps: none", `intake[1].budget.qps: Invalid value: "none"`},
		{"qps: 1/600", "qps: [1]", `intake[1].budget.qps: Invalid value: "[1]"`},
		{"qps: 1/600", "qsp: 1", `unknown field "intake[1].budget.qsp"`},
		{"name: archive", "name: Archive", "receivers[0].name: Invalid value"},
		{"name: archive", "name: " + strings.Repeat("a", 64), "receivers[0].name: Invalid value"},
		{"name: archive", `name: ""`, "receivers[0].name: Required"},
		{"name: hooks", "name: archive", `receivers[1].name: Duplicate value: "archive"`},
		{"from: Oldest", "from: oldest", `receivers[0].from: Unsupported value: "oldest"`},
		{"batchSize: 100", "batchSize: 0", "receivers[0].batchSize: Invalid value: 0"},
		{"batchSize: 100", "batchSize: 10001", "receivers[0].batchSize: Invalid value: 10001"},
		{"batchSize: 100", "batchSize: 0.0", "receivers[0].batchSize"},
		{"batchSize: 100", "batchSize: -1", "receivers[0].batchSize: Invalid value: -1"},
		{"timeout: 5s", "timeout: 99ms", `receivers[0].timeout: Invalid value: "99ms"`},
		{"timeout: 5s", "timeout: 301s", `receivers[0].timeout: Invalid value: "5m1s"`},
		{"timeout: 5s", "timeout: 5", "receivers[0].timeout: Invalid value"},
		{"timeout: 5s", "timeout: soon", `receivers[0].timeout: Invalid value: "soon"`},
		{"- message", "- metadata.uid", `receivers[0].redact[0]: Unsupported value: "metadata.uid"`},
		{`- metadata.annotations["example.com/key"]`, "- message", "receivers[0].redact[1]: Duplicate"},
		{`annotations["example.com/key"]`, `annotations["a b"]`, "receivers[0].redact[1]: Invalid"},
		{`metadata.annotations["example.com/key"]`, `involvedObject["kind"]`, "receivers[0].redact[1]: Invalid"},
		{"protocol: grpc", "protocol: udp", `receivers[0].otlp.protocol: Unsupported value: "udp"`},
		{"compression: none", "compression: lz4", `receivers[0].otlp.compression: Unsupported value: "lz4"`},
		{"endpoint: collector:4317", `endpoint: ""`, "receivers[0].otlp.endpoint: Required"},
		{"endpoint: collector:4317", "endpoint: collector", "receivers[0].otlp.endpoint: Invalid"},
		{"endpoint: collector:4317", "endpoint: http://collector:4317", "receivers[0].otlp.endpoint: Invalid"},
		{"endpoint: collector:4317", "endpoint: collector:0", "receivers[0].otlp.endpoint: Invalid"},
		{"endpoint: collector:4317", "endpoint: :4317", "receivers[0].otlp.endpoint: Invalid"},
		{"endpoint: collector:4317", "endpoint: eventd:s3cret@collector:4317", "receivers[0].otlp.endpoint: Invalid value: must be"},
		{"protocol: grpc", "protocol: http", "receivers[0].otlp.endpoint: Invalid"},
		{"protocol: grpc\n    endpoint: collector:4317", "protocol: http\n    endpoint: https://collector:4318/", "receivers[0].otlp.endpoint: Invalid value: must have a path"},
		{"    tls:\n      caFile: ca.crt", "    insecure: true\n    tls:\n      caFile: ca.crt", "receivers[0].otlp.tls: Forbidden"},
		{"keyFile: tls.key", `keyFile: ""`, "receivers[0].otlp.tls.keyFile: Required"},
		{"certFile: tls.crt", `certFile: ""`, "receivers[0].otlp.tls.certFile: Required"},
		{"serverName: collector.example", "serverName: a/b", "receivers[0].otlp.tls.serverName: Invalid"},
		{"- name: X-Tenant", "- name: X Tenant", "receivers[0].otlp.headers[0].name: Invalid"},
		{"- name: X-Tenant", `- name: ""`, "receivers[0].otlp.headers[0].name: Required"},
		{"- name: X-Tenant", "- name: Content-Type", "receivers[0].otlp.headers[0].name: Forbidden"},
		{"- name: X-Tenant", "- name: User-Agent", "receivers[0].otlp.headers[0].name: Forbidden"},
		{"- name: X-Tenant", "- name: 'X-Key: s3cret'", "receivers[0].otlp.headers[0].name: Invalid value: must be"},
		{"- name: X-Tenant", "- name: X~Tenant", "receivers[0].otlp.headers[0].name: Invalid value: must have only"},
		{"- name: X-Tenant", "- name: grpc-timeout", "receivers[0].otlp.headers[0].name: Forbidden"},
		{"- name: X-Tenant", "- name: x-key", `receivers[0].otlp.headers[1].name: Duplicate value: "x-key"`},
		{"- name: X-Key", "- name: Authorization", "receivers[0].otlp.headers[1].name: Duplicate"},
		{"value: a\n", "value: a\n      file: b\n", "receivers[0].otlp.headers[0]: Required"},
		{"value: a\n", "value: \"\"\n", "receivers[0].otlp.headers[0]: Required"},
		{"value: a\n", "value: \"s3cr\\net\"\n", "receivers[0].otlp.headers[0].value: Invalid value: must be"},
		{"value: a\n", "value: \"s3crét\"\n", "receivers[0].otlp.headers[0].value: Invalid value: must be"},
		{"value: a\n", "value: \" \"\n", "receivers[0].otlp.headers[0].value: Invalid value: must be"},
		{"url: https://hooks.example/events", `url: ""`, "receivers[1].cloudEvents.url: Required"},
		{"url: https://hooks.example/events", "url: ftp://hooks.example", "receivers[1].cloudEvents.url: Invalid"},
		{"url: https://hooks.example/events", "url: https:///events", "receivers[1].cloudEvents.url: Invalid"},
		{"url: https://hooks.example/events", "url: https://a:b@hooks.example", "receivers[1].cloudEvents.url: Forbidden"},
		{"url: https://hooks.example/events", "url: https://a:s3cr%et@hooks.example", "receivers[1].cloudEvents.url: Invalid value: must be"},
		{"url: https://hooks.example/events", "url: https://hooks.example#s3cret", "receivers[1].cloudEvents.url: Invalid value: must be"},
		{"url: https://hooks.example/events", "url: https://hooks.example:99999", "receivers[1].cloudEvents.url: Invalid"},
		{"batched: true", "insecure: true", "receivers[1].cloudEvents.insecure: Forbidden"},
		{"url: https://hooks.example/events", "url: http://hooks.example\n    tls: {}", "receivers[1].cloudEvents.tls: Forbidden"},
		{"url: https://hooks.example/events", "url: HTTP://hooks.example\n    tls: {}", "receivers[1].cloudEvents.tls: Forbidden"},
		{"url: nats://a:4222, tls://b:4222", `url: ""`, "receivers[2].jetStream.url: Required"},
		{"url: nats://a:4222, tls://b:4222", "url: nats://a:4222,http://b", "receivers[2].jetStream.url: Invalid"},
		{"subject: events.cluster", `subject: ""`, "receivers[2].jetStream.subject: Required"},
		{"subject: events.cluster", "subject: events.*", "receivers[2].jetStream.subject: Invalid"},
		{"subject: events.cluster", "subject: events cluster", "receivers[2].jetStream.subject: Invalid"},
		{"subject: events.cluster", "subject: événements", "receivers[2].jetStream.subject: Invalid"},
		{"subject: events.cluster", "subject: $JS.API.INFO", "receivers[2].jetStream.subject: Invalid"},
		{"subject: events.cluster", "subject: events..cluster", "receivers[2].jetStream.subject: Invalid"},
		{"subject: events.cluster", "subject: " + strings.Repeat("a", 256), "receivers[2].jetStream.subject: Too long"},
		{"jsonLines: {}", "jsonLines: {path: /var/./log//events.jsonl}", "receivers[4].jsonLines.path: Duplicate"},
		{"jsonLines: {}", "jsonLines: {path: /var/log/events.jsonl}", "receivers[4].jsonLines.path: Duplicate"},
		{"path: /var/log/events.jsonl", `path: ""` + "\n- name: other\n  jsonLines: {}", "receivers[4].jsonLines.path: Duplicate"},
		{"path: /var/log/events.jsonl", "path: /dev/stdout", "receivers[3].jsonLines.path: Invalid"},
		{"path: /var/log/events.jsonl", "path: /var/../proc/self/fd/1", "receivers[3].jsonLines.path: Invalid"},
		{"path: /var/log/events.jsonl", "path: /var/log/", "receivers[3].jsonLines.path: Invalid"},
		{"protocol: grpc\n    endpoint: collector:4317", "protocol: http\n    endpoint: https://collector:4318", "receivers[0].otlp.endpoint: Invalid value: must have a path"},
		{"protocol: grpc\n    endpoint: collector:4317", "protocol: http\n    endpoint: https://collector:4318/?a", "receivers[0].otlp.endpoint: Invalid value: must have a path"},
		{"node: involvedObject.name", "job: involvedObject.name", "metrics[0].labels[job]: Invalid"},
		{"node: involvedObject.name", "instance: involvedObject.name", "metrics[0].labels[instance]: Invalid"},
		{"maxSeries: 50", "maxSeries: 0", "metrics[0].maxSeries: Invalid value: 0"},
		{"  jsonLines: {}\n", "", "receivers[4]: Required"},
		{"jsonLines: {}", "jsonLines: {}\n  cloudEvents: {url: https://a}", "receivers[4]: Forbidden"},
		{"- name: warnings", "- name: Warnings", "routes[0].name: Invalid"},
		{"- name: rest", "- name: warnings", "routes[1].name: Duplicate"},
		{"receivers: [archive, hooks]", "receivers: [archive, hook]", `routes[0].receivers[1]: Not found: "hook"`},
		{"receivers: [archive, hooks]", "receivers: [archive, archive]", "routes[0].receivers[1]: Duplicate"},
		{"interval: 5m", "interval: soon", `routes[0].throttle.interval: Invalid value: "soon"`},
		{"interval: 5m", "interval: 5", "routes[0].throttle.interval: Invalid value"},
		{"interval: 5m", "interval: 999ms", `routes[0].throttle.interval: Invalid value: "999ms"`},
		{"interval: 5m", "interval: 25h", `routes[0].throttle.interval: Invalid value: "25h0m0s"`},
		{"    interval: 5m\n", "", "routes[0].throttle.interval: Required"},
		{"by: [metadata.namespace,", "by: [involvedObject,", `routes[0].throttle.by[0]: Unsupported value: "involvedObject"`},
		{"by: [metadata.namespace,", "by: [count,", `routes[0].throttle.by[0]: Unsupported value: "count"`},
		{"by: [metadata.namespace,", "by: [reason, reason,", "routes[0].throttle.by[1]: Duplicate"},
		{`'metadata.labels["example.com/team"]'`, `'metadata.labels["a b"]'`, "routes[0].throttle.by[1]: Invalid"},
		{"- name: oom_kills", `- name: ""`, "metrics[0].name: Required"},
		{"- name: oom_kills", "- name: oom-kills", "metrics[0].name: Invalid"},
		{"- name: oom_kills", "- name: 1st", "metrics[0].name: Invalid"},
		{"- name: oom_kills", "- name: oom_kills_total", "metrics[0].name: Invalid"},
		{"- name: oom_kills", "- name: events", `metrics[1].name: Duplicate value: "events"`},
		{"- name: oom_kills", "- name: " + strings.Repeat("a", 101), "metrics[0].name: Too long"},
		{"help: Containers", "help: " + strings.Repeat("C", 1024), "metrics[0].help: Too long"},
		{"node: involvedObject.name", "Node: involvedObject.name", "metrics[0].labels[Node]: Invalid"},
		{"node: involvedObject.name", "__node: involvedObject.name", "metrics[0].labels[__node]: Invalid"},
		{"node: involvedObject.name", "le: involvedObject.name", "metrics[0].labels[le]: Invalid"},
		{"node: involvedObject.name", "quantile: involvedObject.name", "metrics[0].labels[quantile]: Invalid"},
		{"node: involvedObject.name", "node: involvedObject", "metrics[0].labels[node]: Unsupported value"},
		{`team: metadata.annotations["example.com/team"]`, `team: message["a"]`, "metrics[0].labels[team]: Invalid"},
		{"maxSeries: 50", "maxSeries: 10001", "metrics[0].maxSeries: Invalid value: 10001"},
		{"maxSeries: 50", "maxSeries: -1", "metrics[0].maxSeries: Invalid value: -1"},
		{"routes:\n", "---\nroutes:\n", "more than one document"},
		{"apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n", "{apiVersion: config.eventd.io/v1alpha1, kind: EventdConfiguration}\n", "there is more after the end of a document"},
		{"apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\n", "apiVersion: v1\nkind: ConfigMap\n", "kubectl patch --local -f FILE"},
	} {
		t.Run(test.new, func(t *testing.T) {
			if strings.Count(valid, test.old) != 1 {
				t.Fatalf("%q is not there once", test.old)
			}
			_, err := Load([]byte(strings.Replace(valid, test.old, test.new, 1)))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			if err != nil && strings.Contains(err.Error(), "s3cr") {
				t.Errorf("%v has the value of a header", err)
			}
		})
	}
}

// The verification takes the address of a server, too.
func TestServerNameMayBeAnAddress(t *testing.T) {
	for _, name := range []string{"collector.example", "10.0.0.1", "fd00::1"} {
		if _, err := Load([]byte(strings.Replace(readAll(t), "serverName: collector.example", `serverName: "`+name+`"`, 1))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEveryWrongFieldIsAnErrorOfItsOwn(t *testing.T) {
	_, err := Load([]byte(head + "receivers: [{name: a}, {name: a, from: Then, jsonLines: {}}]\n"))
	var aggregate utilerrors.Aggregate
	if !errors.As(err, &aggregate) || len(aggregate.Errors()) != 3 {
		t.Errorf("%v", err)
	}
}

func TestLimits(t *testing.T) {
	repeat := func(n int, format string) (out string) {
		for i := range n {
			out += fmt.Sprintf(format, i)
		}
		return out
	}
	intake := func(n int) string {
		return head + "intake:\n" + repeat(n, "- {name: r%d, match: 'true', drop: true}\n")
	}
	receivers := func(n int) string {
		return head + "receivers:\n" + repeat(n, "- {name: r%d, jsonLines: {path: /%[1]d}}\n")
	}
	routes := func(n int) string { return head + "routes:\n" + repeat(n, "- {name: r%d}\n") }
	headers := func(n int) string {
		return head + "receivers:\n- name: a\n  cloudEvents:\n    url: https://a\n    headers:\n" + repeat(n, "    - {name: h%d, value: a}\n")
	}
	redacted := func(n int) string {
		return head + "receivers:\n- name: a\n  jsonLines: {}\n  redact:\n" + repeat(n, "  - metadata.labels[\"l%d\"]\n")
	}
	metrics := func(n int) string { return head + "metrics:\n" + repeat(n, "- {name: m%d, maxSeries: 100}\n") }
	series := func(n int) string {
		return head + "metrics:\n" + repeat(6, "- {name: m%d, maxSeries: 1000}\n") + fmt.Sprintf("- {name: last, maxSeries: %d}\n", n-6000)
	}
	labels := func(n int) string {
		return head + "metrics:\n- name: a\n  labels:\n" + repeat(n, "    l%d: reason\n")
	}
	by := func(n int) string {
		return head + "routes:\n- name: a\n  throttle:\n    interval: 1s\n    by:\n" + repeat(n, "    - metadata.labels[\"l%d\"]\n")
	}
	size := func(n int) string { return head + strings.Repeat("#", n-len(head)) }
	for name, test := range map[string]struct {
		make  func(int) string
		limit int
		want  string
	}{
		"intake":    {intake, 64, "intake: Too many"},
		"receivers": {receivers, 16, "receivers: Too many"},
		"routes":    {routes, 256, "routes: Too many"},
		"headers":   {headers, 16, "receivers[0].cloudEvents.headers: Too many"},
		"redacted":  {redacted, 64, "receivers[0].redact: Too many"},
		"metrics":   {metrics, 64, "metrics: Too many"},
		"series":    {series, MaxSeries, "metrics: Invalid value: 8001"},
		"labels":    {labels, 8, "metrics[0].labels: Too many"},
		"by":        {by, 8, "routes[0].throttle.by: Too many"},
		"bytes":     {size, MaxBytes, "more than 1048576 bytes"},
	} {
		if _, err := Load([]byte(test.make(test.limit))); err != nil {
			t.Errorf("%d %s: %v", test.limit, name, err)
		}
		if _, err := Load([]byte(test.make(test.limit + 1))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%d %s: %v", test.limit+1, name, err)
		}
	}
}

func TestWhatIsNoConfigurationIsAnError(t *testing.T) {
	bomb := head + "a: &a [x,x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%[1]c [*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c,*%[2]c]\n", c, c-1)
	}
	for _, text := range []string{"", "\n", "# nothing\n", "null", "---\n---\n", "[]", "text", "\t", "{", "\xff", bomb} {
		if config, err := Load([]byte(text)); err == nil {
			t.Errorf("%.40q is %v", text, config)
		}
	}
}

func TestRedactedKey(t *testing.T) {
	for name, want := range map[string][2]string{
		"message":                      {"message", ""},
		`metadata.labels["a/b"]`:       {"metadata.labels", "a/b"},
		`metadata.labels["a/b`:         {`metadata.labels["a/b`, ""},
		`metadata.labels[""]`:          {"metadata.labels", ""},
		`metadata.annotations["a"]"]`:  {"metadata.annotations", `a"]`},
		`metadata.annotations['a']`:    {`metadata.annotations['a']`, ""},
		`metadata.annotations["a"]. "`: {`metadata.annotations["a"]. "`, ""},
	} {
		if of, key := RedactedKey(name); [2]string{of, key} != want {
			t.Errorf("%s: %q, %q", name, of, key)
		}
	}
}

func TestRateIsANumberOrAText(t *testing.T) {
	for text, want := range map[string]float64{
		"1/300": 1. / 300, "10": 10, "0.5": 0.5, "1e-3": 0.001, `"20"`: 20, "unlimited": math.Inf(1),
	} {
		c, err := Load([]byte(head + "intake: [{name: a, match: 'true', budget: {burst: 1, qps: " + text + "}}]\n"))
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if got, err := c.Intake[0].Budget.QPS.PerSecond(); got != want || err != nil {
			t.Errorf("%s is %v, %v", text, got, err)
		}
	}
}
