package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/html"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/eventd/eventd/cmd/kubectl-eventd/app"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// shown are the figures that a person reads, by series as in metrics.Metrics: the text of each.
type shown map[string]string

// Each figure that the page and "kubectl eventd status" show is that of /metrics at a quiet moment, as far as its
// digits go: of every station, the apiserver, a receiver that delivers and one that cannot, the history and rules
// that decide, only count, and fail.
func TestWhatIsShownIsThatOfTheMetrics(t *testing.T) {
	c := testenv.Shared(t)
	account := replica.Deploy(t, c)
	replica.DeployObserve(t, c)
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	configuration := `apiVersion: config.eventd.io/v1alpha1
kind: EventdConfiguration
receivers:
- {name: shown-archive, from: Oldest, jsonLines: {path: ` + filepath.Join(t.TempDir(), "archive.jsonl") + `}}
- {name: shown-away, from: Oldest, cloudEvents: {url: "http://127.0.0.1:9/", insecure: true}}
routes:
- {name: shown-warnings, match: event.type == "Warning", receivers: [shown-away], continue: true}
- {name: shown-fails, match: 'event.metadata.labels["none"] == ""', receivers: [shown-away]}
- {name: shown-rest, receivers: [shown-archive]}
intake:
- {name: shown-noise, match: event.involvedObject.name.startsWith("noisy"), drop: true}
- {name: shown-try, match: event.involvedObject.name == "web", drop: true, dryRun: true}
- {name: shown-budget, match: event.involvedObject.name == "web", budget: {burst: 100, qps: 10}}
metrics:
- {name: shown_events}
`
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	e := &eventd{replica.Run(t, c, replica.Options{
		Credentials: account, PeerToken: replica.PeerToken(t, c),
		Flags: []string{"--kube-api-qps=unlimited", "--cluster-name=e2e", "--history-bytes=8Mi", "--config=" + file},
	}), t, c}
	await.Until(t, "eventd leads", func() bool { return e.counters().Sum("eventd_election_leading") == 1 })
	config, namespace := e.newReporter()
	recorder := classicRecorder(t, config)
	for i := range 4 * 300 { // with a comma, and in parts that the recorder can buffer
		recorder.Event(pod(namespace, fmt.Sprint("noisy-", i)), "Normal", "Tested", "again")
		if i%300 == 299 {
			await.Until(t, "the reports", func() bool { return e.counters().settled("filtered") == float64(i+1) })
		}
	}
	for range 7 {
		recorder.Event(pod(namespace, "web"), "Warning", "BackOff", "again")
	}
	await.Until(t, "all of it is settled and observed", func() bool {
		m := e.counters()
		return m.recorded() >= 7 && m.pending() == 0 && m.Sum("eventd_history_versions") > 0 && m.Sum("eventd_receiver_pending_versions", "receiver=shown-archive") == 0
	})

	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, c.Config()); err != nil {
		t.Fatal(err)
	}
	flags := []string{"--kubeconfig=" + kubeconfig, "--cache-dir=" + t.TempDir()}
	page := openPage(t, flags)
	for name, read := range map[string]func() shown{
		"the page": func() shown { return page.figures(t) },
		"status":   func() shown { return statusFigures(t, flags) },
	} {
		var wrong []string
		var all shown
		ok := await.Success(t.Context(), 30*time.Second, func() error {
			before := e.counters().Metrics
			all = read()
			wrong = compare(before, e.counters().Metrics, all)
			if len(wrong) > 0 {
				return fmt.Errorf("%s", strings.Join(wrong, "\n"))
			}
			return nil
		})
		if ok != nil {
			t.Errorf("%s differs from /metrics:\n%v", name, ok)
		}
		if len(all) < 60 {
			t.Errorf("%s shows only %d figures", name, len(all))
		}
		for _, series := range []string{
			`eventd_receiver_pending_versions{receiver=shown-away}`, `eventd_receiver_lag_seconds{receiver=shown-away}`,
			`eventd_receiver_delivered_versions_total{receiver=shown-archive}`, `eventd_history_versions{}`, `eventd_history_bytes{}`, `eventd_history_capacity_bytes{}`,
			`eventd_intake_rule_occurrences_total{action=drop,rule=shown-noise}`, `eventd_intake_rule_occurrences_total{action=would_drop,rule=shown-try}`,
			`eventd_intake_rule_occurrences_total{action=budget,rule=shown-budget}`, `eventd_route_evaluations_total{result=match,route=shown-rest}`,
			`eventd_metric_evaluations_total{metric=shown_events,result=match}`, `eventd_sink_oldest_pending_seconds{}`, `eventd_observer_buffer_bytes{}`,
		} {
			if _, ok := all[series]; !ok {
				t.Errorf("%s does not show %s", name, series)
			}
		}
		t.Logf("%s: %d figures", name, len(all))
	}
	e.Terminate(t)
}

// growing are gauges of the time since something: they grow while they are compared.
var growing = regexp.MustCompile(`_(lag|pending|overdue|oldest_\w+)_seconds\{`)

// moving are gauges that the connections of the comparison itself change.
var moving = regexp.MustCompile(`^eventd_(connections|intake_in_flight)\{`)

// compare lists the figures whose text is not that of a value between two readings. A status is a second old at
// most.
func compare(before, after metrics.Metrics, all shown) (wrong []string) {
	for series, text := range all {
		from, known := before[series]
		to, still := after[series]
		if !known || !still {
			wrong = append(wrong, series+" is not in /metrics")
			continue
		}
		value, precision, err := parseFigure(text)
		low, high := min(from, to)-precision, max(from, to)+precision
		if growing.MatchString(series) && value > 0 {
			low -= 2
		}
		if moving.MatchString(series) {
			low, high = low-2, high+2
		}
		if err != nil || value < low || value > high {
			wrong = append(wrong, fmt.Sprintf("%s is shown as %q (%v), and is %v to %v (%v)", series, text, value, from, to, err))
		}
	}
	return wrong
}

// units are those of the page and the plugin.
var units = map[string]float64{
	"": 1, "s": 1, "ms": 1e-3, "min": 60, "h": 3600, "days": 86400, "k": 1e3, "M": 1e6, "G": 1e9,
	"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

var figureText = regexp.MustCompile(`^(-?[0-9][0-9,]*)(\.[0-9]+)?[\s\x{a0}]*([A-Za-z]*)$`)

// parseFigure reads a figure as a person does: up to one of its last digit.
func parseFigure(text string) (value, precision float64, err error) {
	parts := figureText.FindStringSubmatch(text)
	if parts == nil || units[parts[3]] == 0 {
		return 0, 0, fmt.Errorf("%q is no figure", text)
	}
	unit := units[parts[3]]
	value, err = strconv.ParseFloat(strings.ReplaceAll(parts[1], ",", "")+parts[2], 64)
	switch {
	case parts[2] != "":
		precision = math.Pow10(1 - len(parts[2]))
	case unit != 1 || parts[3] == "s":
		precision = 1
	}
	return value * unit, precision * unit, err
}

// statusFigures runs "kubectl eventd status", and reads its tables.
func statusFigures(t *testing.T, flags []string) shown {
	t.Helper()
	var out, errOut bytes.Buffer
	streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &errOut}
	if code := app.Run(t.Context(), streams, append([]string{"status", "--once", "-o", "wide"}, flags...)); code != 0 {
		t.Fatalf("exit code %d: %s", code, errOut.String())
	}
	all := shown{}
	set := func(value, metric string, labels ...string) {
		if value != "" {
			all[metric+"{"+strings.Join(labels, ",")+"}"] = strings.TrimSuffix(value, "s")
		}
	}
	history := regexp.MustCompile(`History: +(\d+) versions .* in (\S+ \S+) of (\S+ \S+), connected`).FindStringSubmatch(out.String())
	if history == nil {
		t.Fatalf("there is no history in\n%s", out.String())
	}
	set(history[1], "eventd_history_versions")
	for i, metric := range []string{"eventd_history_bytes", "eventd_history_capacity_bytes"} {
		set(history[i+2], metric)
	}
	for _, table := range strings.Split(out.String(), "\n\n")[1:] {
		lines := strings.Split(strings.TrimRight(table, "\n"), "\n")
		columns := newColumns(lines[0])
		for _, line := range lines[1:] {
			cell := columns.of(line)
			switch name := cell["STATION"]; {
			case cell["FIGURE"] != "":
				metric, labels, _ := strings.Cut(strings.TrimSuffix(cell["FIGURE"], "}"), "{")
				set(cell["VALUE"], metric, strings.ReplaceAll(labels, `"`, ""))
			case cell["RECEIVER"] != "":
				set(cell["LAG"], "eventd_receiver_lag_seconds", "receiver="+cell["RECEIVER"])
				set(cell["PENDING"], "eventd_receiver_pending_versions", "receiver="+cell["RECEIVER"])
			case cell["RULE"] != "":
				metric, label := "eventd_route_evaluations_total", "result=match,route="
				if cell["KIND"] == "intake" {
					metric, label = "eventd_intake_rule_occurrences_total", "action="+cell["DOES"]+",rule="
				} else if cell["KIND"] == "metric" {
					metric, label = "eventd_metric_evaluations_total", "metric="
					set(cell["MATCHED"], metric, label+cell["RULE"]+",result=match")
					continue
				}
				set(cell["MATCHED"], metric, label+cell["RULE"])
			case queues[name] != [3]string{}:
				for i, column := range []string{"QUEUE", "CAPACITY", "OLDEST"} {
					if queues[name][i] != "" {
						metric, labels, _ := strings.Cut(queues[name][i], "{")
						set(cell[column], metric, labels)
					}
				}
			}
		}
	}
	return all
}

// queues are the metrics of the queues that the plugin shows by station.
var queues = map[string][3]string{
	"intake":      {"eventd_intake_in_flight", "eventd_intake_in_flight_capacity"},
	"broadcaster": {"eventd_broadcaster_queue_length{subscriber=sink", "eventd_broadcaster_queue_capacity{subscriber=sink"},
	"sink":        {"eventd_sink_pending_series", "eventd_sink_pending_series_capacity", "eventd_sink_oldest_pending_seconds"},
	"observer":    {"eventd_observer_buffer_bytes", "eventd_observer_buffer_capacity_bytes"},
}

// columns are those of a table, by the position of their names.
type columns struct {
	names  []string
	starts []int
}

func newColumns(header string) (c columns) {
	for _, at := range regexp.MustCompile(`\S+( \S+)*`).FindAllStringIndex(header, -1) {
		c.names, c.starts = append(c.names, header[at[0]:at[1]]), append(c.starts, at[0])
	}
	return c
}

func (c columns) of(line string) map[string]string {
	out := map[string]string{}
	for i, start := range c.starts {
		end := len(line)
		if i+1 < len(c.starts) {
			end = min(end, c.starts[i+1])
		}
		out[c.names[i]] = strings.TrimSpace(line[min(start, len(line)):end])
	}
	return out
}

// page is a page that is open in a browser without a script.
type page struct {
	http.Client
	address string
}

// output is what a command writes while it runs.
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

// openPage runs "kubectl eventd page" until the test ends.
func openPage(t *testing.T, flags []string) *page {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var out output
	ended := make(chan int, 1)
	go func() {
		streams := genericiooptions.IOStreams{In: &bytes.Buffer{}, Out: &out, ErrOut: &out}
		ended <- app.Run(ctx, streams, append([]string{"page"}, flags...))
	}()
	p := &page{Client: http.Client{Transport: &http.Transport{}}}
	t.Cleanup(func() {
		p.CloseIdleConnections()
		cancel()
		if code := <-ended; code != 0 {
			t.Errorf("exit code %d: %s", code, out.String())
		}
	})
	await.Until(t, "an address", func() bool {
		p.address = regexp.MustCompile(`http://\S+`).FindString(out.String())
		return p.address != ""
	})
	var err error
	if p.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	p.get(t, p.address)
	p.address, _, _ = strings.Cut(p.address, "/open/")
	return p
}

func (p *page) get(t *testing.T, address string) []byte {
	t.Helper()
	response, err := p.Get(address)
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	_ = response.Body.Close()
	if err != nil || response.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v: %s", response.Status, err, body)
	}
	return body
}

// figures reads the status: the text of each figure, or of a counter what is beside its rate.
func (p *page) figures(t *testing.T) shown {
	t.Helper()
	root, err := html.Parse(bytes.NewReader(p.get(t, p.address+"/")))
	if err != nil {
		t.Fatal(err)
	}
	all := shown{}
	for n := range root.Descendants() {
		attributes := map[string]string{}
		for _, a := range n.Attr {
			attributes[a.Key] = a.Val
		}
		metric := attributes["data-metric"]
		if metric == "" || strings.HasSuffix(metric, "_timestamp_seconds") { // a time of day
			continue
		}
		text := textOf(n)
		if strings.HasSuffix(text, "/s") {
			text = textBeside(n)
		}
		all[metric+"{"+strings.ReplaceAll(attributes["data-labels"], `"`, "")+"}"] = text
	}
	return all
}

func textOf(n *html.Node) string {
	var b strings.Builder
	for d := range n.Descendants() {
		if d.Type == html.TextNode {
			b.WriteString(d.Data)
		}
	}
	return strings.TrimSpace(b.String())
}

// textBeside returns the value of a counter that is shown beside its rate.
func textBeside(n *html.Node) string {
	for s := n.NextSibling; s != nil; s = s.NextSibling {
		for _, a := range s.Attr {
			if a.Key == "class" && a.Val == "beside" {
				return textOf(s)
			}
		}
	}
	return ""
}
