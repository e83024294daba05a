package monitoring

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
)

// casesFile has the cases of "promtool test rules".
const casesFile = "testdata/alerts.yaml"

// ruleCase has the fields of one of them that are read here.
type ruleCase struct {
	InputSeries   []struct{ Series string } `json:"input_series"`
	AlertRuleTest []struct {
		Alertname string
		ExpAlerts []struct {
			ExpLabels map[string]string `json:"exp_labels"`
		} `json:"exp_alerts"`
	} `json:"alert_rule_test"`
}

func TestAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	promtool := prometheusTool(t, "promtool")
	dir := t.TempDir()
	rules, _ := ruleFile(t)
	content, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{"rules.yaml": rules, "alerts.yaml": content} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	run(t, promtool, "check", "rules", "--lint-fatal", filepath.Join(dir, "rules.yaml"))
	run(t, promtool, "test", "rules", filepath.Join(dir, "alerts.yaml"))
}

// Every rule has a case in which it fires, and one in which its metrics exist and it
// does not fire.
func TestEveryAlertHasAFiringAndASilentCase(t *testing.T) {
	content, err := os.ReadFile(casesFile)
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Tests []ruleCase
	}
	if err := utilyaml.Unmarshal(content, &c); err != nil {
		t.Fatal(err)
	}
	_, rules := ruleFile(t)
	for _, r := range rules {
		fires, silent := false, false
		for _, test := range c.Tests {
			for _, expected := range test.AlertRuleTest {
				if expected.Alertname != r.Alert {
					continue
				}
				silent = silent || len(expected.ExpAlerts) == 0 && test.gives(metricsIn(r.Expr))
				for _, alert := range expected.ExpAlerts {
					fires = fires || labels.SelectorFromSet(r.Labels).Matches(labels.Set(alert.ExpLabels))
				}
			}
		}
		if !fires || !silent {
			t.Errorf("%s %v: fires in a case: %t; is silent in one: %t", r.Alert, r.Labels, fires, silent)
		}
	}
}

// gives reports whether a case has all of some metrics.
func (c *ruleCase) gives(metrics []string) bool {
	given := map[string]bool{}
	for _, s := range c.InputSeries {
		name, _, _ := strings.Cut(s.Series, "{")
		given[name] = true
	}
	return !slices.ContainsFunc(metrics, func(name string) bool { return !given[name] })
}

// runbookPages are the pages of docs that alerts link to.
var runbookPages = []string{"runbooks.md", "delivery-runbooks.md"}

func TestAlertsSayWhatToDo(t *testing.T) {
	runbooks := map[string]string{} // page by heading
	for _, page := range runbookPages {
		for _, heading := range headings(readDoc(t, page)) {
			runbooks[heading] = page
		}
	}
	_, rules := ruleFile(t)
	alerts := map[string]bool{}
	for _, r := range rules {
		alerts[r.Alert] = true
		if s := r.Labels["severity"]; s != "critical" && s != "warning" {
			t.Errorf("%s has the severity %q", r.Alert, s)
		}
		for _, name := range []string{"summary", "description"} {
			if r.Annotations[name] == "" {
				t.Errorf("%s has no %s", r.Alert, name)
			}
		}
		want := "https://github.com/eventd/eventd/blob/main/docs/" + runbooks[r.Alert] + "#" + strings.ToLower(r.Alert)
		if r.Annotations["runbook_url"] != want {
			t.Errorf("%s leads to %s, want %s", r.Alert, r.Annotations["runbook_url"], want)
		}
	}
	for heading, page := range runbooks {
		if strings.HasPrefix(heading, "Eventd") && !alerts[heading] {
			t.Errorf("docs/%s is about %s, which is no alert", page, heading)
		}
	}
}
