package monitoring

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	dto "github.com/prometheus/client_model/go"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/testenv"
)

// pages are the pages of metrics. A metric is on the first whose sections have it, by how its
// name begins.
var pages = []struct {
	file, head, tail string
	sections         []section
}{
	{"query-metrics.md", queryHead, "", queries},
	{"delivery-metrics.md", deliveryHead, "", delivery},
	{"metrics.md", pageHead, "\nThe Prometheus client library adds `go_*`, `process_*` and `promhttp_*`.\n", stages},
}

const queryHead = `# Metrics of queries

For operators: what each metric means of [queries](query.md), and of what they are answered from: the history, with ` + "`--history-bytes`" + `, and the trail.

<!-- Generated from a running eventd: go test ./test/monitoring -run Page -update -->
`

// queries are the sections about queries.
var queries = []section{
	{"eventd_query_", "Queries"},
	{"eventd_history_", "History"},
	{"eventd_trail_", "Trail"},
}

const deliveryHead = `# Metrics of the delivery and of intake rules

For operators: what each metric means that eventd adds to [the others](metrics.md) with ` + "`--config`" + `. The values of ` + "`receiver`, `route`, `rule` and `metric`" + ` are those of the configuration; the receiver ` + "`_metrics`" + ` counts for its metrics, which are ` + "`eventd_rule_NAME_total`" + ` ([event-metrics.md](event-metrics.md)).

<!-- Generated from a running eventd: go test ./test/monitoring -run Page -update -->
`

type section struct{ prefix, title string }

// delivery are the sections about the way out.
var delivery = []section{
	{"eventd_receiver_", "Receivers"},
	{"eventd_route_", "Routes"},
	{"eventd_metric_", "Metrics of the configuration"},
	{"eventd_observer_", "Observer"},
	{"eventd_cursors_", "Cursors"},
	{"eventd_intake_rule_", "Intake rules"},
	{"eventd_configuration_", "Configuration"},
}

const pageHead = `# Metrics

For operators, and authors of controllers that set a ` + "`Registerer`" + `: what each metric means.

eventd serves them at ` + "`/metrics`" + `, port 10280. The caller needs the right to ` + "`get`" + ` this path. A controller exports those of its stages, with the labels ` + "`broadcaster`" + ` and ` + "`sink`" + ` added; those of a sink that [reports to eventd](library.md#report-to-eventd) are there. Names in ` + "`_total`" + ` are counters, histograms are marked, all others are gauges. [correlation.md](correlation.md) defines *subject*, *series* and *group*.

<!-- Generated from a running eventd: go test ./test/monitoring -run Page -update -->
`

// stages are the sections about the way in, and the process.
var stages = []section{
	{"eventd_occurrences_", "Occurrences"},
	{"eventd_intake_", "Intake"},
	{"eventd_relay_", "Relay"},
	{"eventd_recorder_", "Recorder"},
	{"eventd_broadcaster_", "Broadcaster"},
	{"eventd_correlator_", "Correlator"},
	{"eventd_sink_", "Sink"},
	{"eventd_held_", "Replication"},
	{"eventd_election_", "Election"},
	{"eventd_serving_ca_", "Serving CA"},
	{"", "Process"},
}

// about stands above the metrics of a stage.
var about = map[string]string{
	"Occurrences": "At every quiet moment, on each replica, `recorded + adopted = settled + pending`, each summed over its labels. " +
		"Outcomes: `created` (an Event was created for it), `merged` (counted on an existing Event), " +
		"`aggregated` (counted on the combined Event of its group), `replayed` (reported again, counted before), " +
		"`found` (counted by another replica), `handed_over` (left to the next leader), " +
		"`acknowledged` (accepted by another eventd, in a process that [reports to it](library.md#report-to-eventd)), " +
		"`filtered` (dropped by an [intake rule](intake-rules.md), whose name is the reason), " +
		"`dropped` (lost, with a [reason](drop-reasons.md)), " +
		"`uncertain` (dropped, but perhaps counted by a write without an answer).",
	"Receivers": "At every quiet moment, on each replica, `observed = delivered + filtered + superseded + given_up + handed_over + pending`, " +
		"each summed over its labels.",
	"Intake rules": "The counters of a rule stay when it is removed or changed. After 256 names, further rules share the ones without a name.",
}

// open says which values labels have, of one metric or of any, that have more than
// those that are there at the start.
var open = map[string]string{
	"code":      "HTTP status codes",
	"version":   "of eventd",
	"commit":    "of the source",
	"goversion": "of the compiler",
	"role":      "`intake`, `observe`, or `all`",
	"hash":      "SHA-256",
	"receiver":  "of the configuration",
	"route":     "of the configuration",
	"rule":      "of the configuration",
	"metric":    "of the configuration",

	"eventd_intake_requests_total verb":           "`create`, `update`, `patch`, and of refused ones `get`, `list`, `watch`, `delete`, `deletecollection`, `other`",
	"eventd_intake_request_duration_seconds verb": "as in `eventd_intake_requests_total`",
}

// standard are the metrics of the Prometheus client library, which change with Go and with the
// operating system, and those of the configuration.
var standard = regexp.MustCompile("^(go|process|promhttp|eventd_rule)_")

func TestPageOfMetricsIsUpToDate(t *testing.T) {
	families := liveMetrics(t)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(families)), standard.MatchString)
	for _, p := range pages {
		var text string
		text, names = pageOf(p.head, p.sections, families, names)
		text += p.tail
		if *update {
			if err := os.WriteFile("../../docs/"+p.file, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if readDoc(t, p.file) != text {
			t.Errorf("docs/%s is not what eventd shows; go test ./test/monitoring -run Page -update writes:\n%s", p.file, text)
		}
	}
	// The page tells counters from gauges by their names.
	for name, f := range families {
		counter, total := f.GetType() == dto.MetricType_COUNTER, strings.HasSuffix(name, "_total")
		if counter != total && !standard.MatchString(name) {
			t.Errorf("%s is a %s", name, strings.ToLower(f.GetType().String()))
		}
	}
	// A metric whose labels have no values at the start would be left out.
	for name, file := range namesInSource(t) {
		if _, ok := families[name]; !ok {
			t.Errorf("%s, of %s, is not there from the start", name, file)
		}
	}
}

// liveMetrics returns what an eventd shows that has nothing done yet.
func liveMetrics(t *testing.T) map[string]*dto.MetricFamily {
	t.Helper()
	cluster := testenv.Shared(t)
	r := startReplica(t, cluster, app.RoleAll)
	text, err := metrics.Text(t.Context(), r.Config(cluster.Config()))
	if err != nil {
		t.Fatal(err)
	}
	r.Terminate(t)
	families, err := metrics.Parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// namesInSource finds the names of metrics in the code, and in which file.
func namesInSource(t *testing.T) map[string]string {
	t.Helper()
	name := regexp.MustCompile(`"(eventd_[a-z0-9_]*[a-z0-9])"`)
	names := map[string]string{}
	for _, dir := range []string{"../../pkg", "../../internal"} {
		files, err := filepath.Glob(dir + "/*/*.go")
		if err != nil || len(files) == 0 {
			t.Fatalf("no code in %s (%v)", dir, err)
		}
		for _, file := range files {
			if strings.HasSuffix(file, "_test.go") {
				continue
			}
			code, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, found := range name.FindAllSubmatch(code, -1) {
				names[string(found[1])] = file
			}
		}
	}
	return names
}

// pageOf returns a page, and the names of the metrics that are not on it.
func pageOf(head string, sections []section, families map[string]*dto.MetricFamily, names []string) (_ string, others []string) {
	var page strings.Builder
	page.WriteString(head)
	for _, s := range sections {
		var rows []string
		names = slices.DeleteFunc(names, func(name string) bool {
			if !strings.HasPrefix(name, s.prefix) {
				return false
			}
			rows = append(rows, rowOf(families[name]))
			return true
		})
		fmt.Fprintf(&page, "\n## %s\n\n", s.title)
		if text := about[s.title]; text != "" {
			page.WriteString(text + "\n\n")
		}
		page.WriteString(strings.Join(rows, ""))
	}
	return page.String(), names
}

func rowOf(f *dto.MetricFamily) string {
	marked := ""
	if f.GetType() == dto.MetricType_HISTOGRAM {
		marked = " (histogram)"
	}
	meaning := f.GetHelp()
	if labels := labelsOf(f); len(labels) > 0 {
		meaning += " " + strings.Join(labels, "; ") + "."
	}
	return fmt.Sprintf("- `%s`%s: %s\n", f.GetName(), marked, meaning)
}

// labelsOf returns each label of a metric with its values.
func labelsOf(f *dto.MetricFamily) []string {
	values := map[string][]string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			values[l.GetName()] = append(values[l.GetName()], "`"+l.GetValue()+"`")
		}
	}
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := slices.DeleteFunc(values[name], func(v string) bool { return v == "``" })
		slices.Sort(known)
		text := strings.Join(slices.Compact(known), ", ")
		if said := cmp.Or(open[f.GetName()+" "+name], open[name]); said != "" {
			text = said
		}
		lines = append(lines, "`"+name+"`: "+text)
	}
	return lines
}
