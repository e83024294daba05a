package monitoring

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/eventd/eventd/test/replica"
)

// The alerts, the dashboard and the pages are about metrics that there are.
func TestNothingIsSaidOfMetricsThatAreNot(t *testing.T) {
	known := pageMetrics(t)
	check := func(where, text string) {
		for _, name := range metricsIn(text) {
			if _, ok := known[name]; !ok && !standard.MatchString(name) {
				t.Errorf("%s is about %s, which is on no page of metrics", where, name)
			}
		}
	}
	_, rules := ruleFile(t)
	for _, r := range rules {
		check(r.Alert, r.Expr)
	}
	for _, q := range dashboardQueries(t) {
		check("the dashboard's "+q.panel, q.expr)
	}
	for _, file := range append(runbookPages, "drop-reasons.md", "election.md", "correlation.md", "architecture.md", "delivery.md", "routing.md", "intake-rules.md", "event-metrics.md") {
		check(file, readDoc(t, file))
	}
}

// Nor are the alerts about values of labels that are never there: they would keep
// silent for ever.
func TestAlertsAreAboutValuesThatThereAre(t *testing.T) {
	known := pageMetrics(t)
	selector := regexp.MustCompile(`(\w+)\{([^}]*)\}`)
	matcher := regexp.MustCompile(`(outcome|reason|class|transition|state|result|role)!?=~?"([^"]*)"`)
	_, rules := ruleFile(t)
	checked := 0
	for _, r := range rules {
		for _, s := range selector.FindAllStringSubmatch(r.Expr, -1) {
			for _, m := range matcher.FindAllStringSubmatch(s[2], -1) {
				for value := range strings.SplitSeq(m[2], "|") {
					checked++
					if !strings.Contains(known[s[1]], "`"+value+"`") {
						t.Errorf("%s is about %s %s of %s, which no page of metrics knows", r.Alert, m[1], value, s[1])
					}
				}
			}
		}
	}
	if checked == 0 {
		t.Error("no alert is about the value of a label")
	}
}

func TestRunbooksSpeakOfWhatThereIs(t *testing.T) {
	runbooks := readDoc(t, "drop-reasons.md")
	for _, page := range runbookPages {
		runbooks += readDoc(t, page)
	}
	reasons := regexp.MustCompile("`reason`: ([^;.\n]*)").FindStringSubmatch(pageMetrics(t)["eventd_occurrences_settled_total"])
	if reasons == nil {
		t.Fatal("the pages do not say for which reasons occurrences are dropped")
	}
	for reason := range strings.SplitSeq(strings.TrimSpace(reasons[1]), ", ") {
		if !strings.Contains(readDoc(t, "drop-reasons.md"), reason) {
			t.Errorf("they do not say what to do about what is dropped for %s", reason)
		}
	}
	help := run(t, replica.Binary(), "--help")
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(runbooks, -1) {
		if !regexp.MustCompile(`(?m)^\s+(-\w, )?` + flag[1] + `\s`).MatchString(help) {
			t.Errorf("they speak of %s, which is no flag", flag[1])
		}
	}
	var panels []string
	for _, p := range readDashboard(t).Panels {
		panels = append(panels, p.Title)
	}
	for _, name := range regexp.MustCompile(`[ (]\*([A-Z][^*]+)\*`).FindAllStringSubmatch(runbooks, -1) {
		if !slices.Contains(panels, name[1]) {
			t.Errorf("they speak of %s, which the dashboard does not show", name[1])
		}
	}
	for _, limit := range []string{"max-requests-inflight", "queue-capacity", "max-pending-series", "max-pending-bytes"} {
		if !strings.Contains(runbooks, "- `"+limit+"`") {
			t.Errorf("they do not say what to do about %s", limit)
		}
	}
}

// The promises name tests that prove them. A test that was renamed or removed proves nothing.
func TestPagesNameTestsThatThereAre(t *testing.T) {
	defined, definition := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	if err := filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range definition.FindAllSubmatch(text, -1) {
			defined[string(found[1])] = true
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	pages, err := filepath.Glob("../../docs/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("there are no pages (%v)", err)
	}
	for _, page := range pages {
		for _, name := range regexp.MustCompile(`\b(Test|Fuzz|Benchmark)[A-Z]\w*`).FindAllString(readDoc(t, filepath.Base(page)), -1) {
			if !defined[name] {
				t.Errorf("%s names %s, which is no test", page, name)
			}
		}
	}
}

// pageMetrics are the metrics of the pages, also by the names that the parts of histograms
// have, with their meaning and labels.
func pageMetrics(t *testing.T) map[string]string {
	t.Helper()
	meaning, text := map[string]string{}, ""
	for _, p := range pages {
		text += readDoc(t, p.file)
	}
	for _, row := range regexp.MustCompile("(?m)^- `([a-z0-9_]+)`( \\(histogram\\))?: (.*)$").FindAllStringSubmatch(text, -1) {
		meaning[row[1]] = row[3]
		if row[2] != "" {
			for _, part := range []string{"_bucket", "_count", "_sum"} {
				meaning[row[1]+part] = row[3]
			}
		}
	}
	if len(meaning) == 0 {
		t.Fatal("the pages have no metrics")
	}
	return meaning
}

var metric = regexp.MustCompile(`\b(eventd|process)_[a-z0-9_]+`)

// metricsIn are the names of eventd's metrics in a text.
func metricsIn(text string) []string { return metric.FindAllString(text, -1) }

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// headings are those of the sections of a page.
func headings(page string) (out []string) {
	for line := range strings.Lines(page) {
		if title, ok := strings.CutPrefix(line, "## "); ok {
			out = append(out, strings.TrimSpace(title))
		}
	}
	return out
}
