package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

// rulesFile is the file of --config. It has intake rules and no receivers, so eventd needs no further
// flag and no further right.
type rulesFile struct {
	t    *testing.T
	name string
}

func newRulesFile(t *testing.T, rules string) *rulesFile {
	t.Helper()
	f := &rulesFile{t, filepath.Join(t.TempDir(), "configuration.yaml")}
	f.write(rules)
	return f
}

func (f *rulesFile) flag() string { return "--config=" + f.name }

// write replaces the rules, and returns the hash of the file.
func (f *rulesFile) write(rules string) (hash string) {
	f.t.Helper()
	content := []byte("apiVersion: config.eventd.io/v1alpha1\nkind: EventdConfiguration\nintake:\n" + rules)
	if err := os.WriteFile(f.name, content, 0o600); err != nil {
		f.t.Fatal(err)
	}
	return fmt.Sprintf("%x", sha256.Sum256(content))
}

// reload waits until eventd has reloaded the rules.
func (e *eventd) reload(f *rulesFile, rules string) {
	e.t.Helper()
	hash := f.write(rules)
	await.Until(e.t, "the rules to be in force", func() bool {
		_, found := e.counters().Lookup("eventd_configuration_info", "hash="+hash)
		return found
	})
}

// client-go's recorder counts by itself. What was filtered of its count is never stored, and what was
// not is, however the rules change.
func TestIntakeRulesAreSwitchedWhileAClientCounts(t *testing.T) {
	const noisy = `- {name: noise, match: event.involvedObject.name == "noisy", drop: true}
- {name: try, match: event.involvedObject.name == "kept", drop: true, dryRun: true}
`
	f := newRulesFile(t, noisy)
	e := startEventd(t, f.flag(), "--series-heartbeat=1s")
	config, namespace := e.newReporter()
	recorder := classicRecorder(t, config)
	recorded := 0
	record := func(object string, n int) {
		t.Helper()
		for range n {
			recorder.Event(pod(namespace, object), "Normal", "Tested", "again")
		}
		recorded += n
		await.Until(t, "the reports", func() bool { return e.counters().recorded() >= float64(recorded) })
	}
	want := func(filtered float64, counts stored.Counts[string]) {
		t.Helper()
		c := e.wantConserved(recorded)
		if got := c.Sum("eventd_occurrences_settled_total", "outcome=filtered", "reason=noise"); got != filtered || c.settled("filtered") != filtered {
			t.Errorf("%v are filtered by the rule, %v by all, want %v", got, c.settled("filtered"), filtered)
		}
		if got := c.Sum("eventd_intake_rule_occurrences_total", "rule=noise", "action=drop"); got != filtered {
			t.Errorf("the rule has dropped %v, want %v", got, filtered)
		}
		e.wantStored(namespace, counts)
	}
	record("noisy", 5)
	record("kept", 3)
	want(5, stored.Counts[string]{"kept": 3})
	if got := e.counters().Sum("eventd_intake_rule_occurrences_total", "rule=try", "action=would_drop"); got != 3 {
		t.Errorf("the dry run would have dropped %v", got)
	}
	e.reload(f, "- {name: noise, match: 'false', drop: true}\n")
	record("noisy", 4)
	want(5, stored.Counts[string]{"kept": 3, "noisy": 4})
	e.reload(f, noisy)
	record("noisy", 2)
	record("kept", 1)
	want(7, stored.Counts[string]{"kept": 4, "noisy": 4})
	e.reload(f, "- {name: other, match: 'false', drop: true}\n")
	record("noisy", 1)
	want(7, stored.Counts[string]{"kept": 4, "noisy": 5})
	e.Terminate(t)
}

// What matches a rule has a budget of its own. Nothing of it is lost.
func TestIntakeRuleGivesABudget(t *testing.T) {
	f := newRulesFile(t, "- {name: slow, match: event.reason.startsWith('Slow'), budget: {burst: 1, qps: 1/3600}}\n")
	e := startEventd(t, f.flag())
	config, namespace := e.newReporter()
	recorder := classicRecorder(t, config)
	for i := range 4 {
		for _, reason := range []string{"Slow", "Usual"} {
			recorder.Event(pod(namespace, "web"), "Normal", fmt.Sprint(reason, i), "once")
		}
	}
	var c counters
	await.Until(t, "the usual ones to be written", func() bool {
		c = e.counters()
		return c.recorded() == 8 && c.written() == 4+1 && c.pending() == 3
	})
	if got := c.Sum("eventd_intake_rule_occurrences_total", "rule=slow", "action=budget"); got != 4 {
		t.Errorf("%v have the budget", got)
	}
	e.Terminate(t)
	if events := stored.ByObject(t, e.cluster, namespace)["web"]; len(events) != 8 {
		t.Errorf("%d Events are stored in the end", len(events))
	}
}
