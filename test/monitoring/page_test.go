package monitoring

import (
	"bytes"
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
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/eventd/eventd/test/testenv"
)

const pageFile = "../../docs/metrics.md"

const pageHead = `# Metrics

What eventd shows at ` + "`/metrics`" + `, on the port that it serves Events on, to whoever may ` + "`get`" + ` the non-resource URL ` + "`/metrics`" + `. A controller that uses eventd as a library shows those of the stations that it uses, with the further labels ` + "`broadcaster`" + ` and ` + "`sink`" + `.

Names, types, labels and their values are kept from release to release; what is no more is told in the changelog. Everything whose labels are known beforehand is there from the start, at 0.

[deploy/monitoring](../deploy/monitoring) has alerts and a dashboard of these, and [runbooks.md](runbooks.md) says what to do about the alerts.

<!-- Generated from a running eventd: go test ./test/monitoring -run Page -update -->
`

// stations are the sections of the page, by how the names of their metrics begin.
var stations = []struct{ prefix, title string }{
	{"eventd_occurrences_", "Accounts"},
	{"eventd_intake_", "Intake"},
	{"eventd_relay_", "Relay"},
	{"eventd_recorder_", "Recorder"},
	{"eventd_broadcaster_", "Broadcaster"},
	{"eventd_correlator_", "Correlator"},
	{"eventd_sink_", "Sink"},
	{"eventd_election_", "Election"},
	{"", "The process"},
}

// about stands above the table of a station.
var about = map[string]string{
	"Accounts": "At every quiet moment, and for each replica, `recorded = settled + pending`, each summed over all its labels.",
}

// open says which values labels have, of one metric or of any, that have more than
// those that are there at the start.
var open = map[string]string{
	"code":      "HTTP status codes",
	"version":   "what runs",
	"commit":    "what it was built from",
	"goversion": "what it was built with",

	"eventd_intake_requests_total verb":           "`create`, `update`, `patch`, and others, which are refused: `get`, `list`, `watch`, `delete`, `deletecollection`, `other`",
	"eventd_intake_request_duration_seconds verb": "as of `eventd_intake_requests_total`",
}

// standard are the metrics that every Go process has. They change with Go and with
// the operating system.
var standard = regexp.MustCompile("^(go|process)_")

func TestPageOfMetricsIsUpToDate(t *testing.T) {
	families := liveMetrics(t)
	page := []byte(pageOf(families))
	if *update {
		if err := os.WriteFile(pageFile, page, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := os.ReadFile(pageFile)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(stored, page) {
		t.Errorf("docs/metrics.md is not what eventd shows; go test ./test/monitoring -run Page -update writes:\n%s", page)
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
	applyDeploy(t, cluster)
	r := startReplica(t, cluster)
	text, err := r.metrics(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	r.terminate()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// namesInSource finds the names of metrics in the code, and in which file.
func namesInSource(t *testing.T) map[string]string {
	t.Helper()
	name := regexp.MustCompile(`"(eventd_[a-z0-9_]+)"`)
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

func pageOf(families map[string]*dto.MetricFamily) string {
	var page strings.Builder
	page.WriteString(pageHead)
	names := slices.DeleteFunc(slices.Sorted(maps.Keys(families)), standard.MatchString)
	for _, s := range stations {
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
		page.WriteString("| metric | type | labels | what it is |\n|---|---|---|---|\n" + strings.Join(rows, ""))
	}
	page.WriteString("\nBesides these, `go_*` and `process_*` are those that every Go program shows through the Prometheus client library.\n")
	return page.String()
}

func rowOf(f *dto.MetricFamily) string {
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n",
		f.GetName(), strings.ToLower(f.GetType().String()), labelsOf(f), strings.ReplaceAll(f.GetHelp(), "|", `\|`))
}

// labelsOf says which labels a metric has, and their values.
func labelsOf(f *dto.MetricFamily) string {
	values := map[string][]string{}
	for _, m := range f.GetMetric() {
		for _, l := range m.GetLabel() {
			values[l.GetName()] = append(values[l.GetName()], "`"+l.GetValue()+"`")
		}
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(values)) {
		known := slices.DeleteFunc(values[name], func(v string) bool { return v == "``" })
		slices.Sort(known)
		text := strings.Join(slices.Compact(known), ", ")
		if said := cmp.Or(open[f.GetName()+" "+name], open[name]); said != "" {
			text = said
		}
		labels = append(labels, "`"+name+"`: "+text)
	}
	return strings.Join(labels, "<br>")
}
