package rules

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/occurrence"
)

func drops(name, match string) v1alpha1.IntakeRule {
	return v1alpha1.IntakeRule{Name: name, Match: match, Drop: true}
}

func budgets(name, match string, burst int32, qps v1alpha1.Rate) v1alpha1.IntakeRule {
	return v1alpha1.IntakeRule{Name: name, Match: match, Budget: &v1alpha1.Budget{Burst: burst, QPS: qps}}
}

func dry(r v1alpha1.IntakeRule) v1alpha1.IntakeRule {
	r.DryRun = true
	return r
}

// using returns an Intake with rules in force, and their set.
func using(t testing.TB, r prometheus.Registerer, rules ...v1alpha1.IntakeRule) (*Intake, *Set) {
	t.Helper()
	i, err := NewIntake(r)
	if err != nil {
		t.Fatal(err)
	}
	set := mustCompile(t, &v1alpha1.EventdConfiguration{Intake: rules})
	i.Use(set)
	return i, set
}

// outcome is what Intake and Decide have in common: the results, and what is decided.
func outcome(evaluations []IntakeEvaluation) (results, decided string) {
	decided = "none"
	for _, e := range evaluations {
		results += " " + string(e.Result)
		if e.Result == Match && (e.Action == Drop || e.Action == Budget) {
			decided = string(e.Action) + " " + e.Rule
		}
	}
	return strings.TrimSpace(results), decided
}

func decision(drop occurrence.Reason, budget *occurrence.Budget) string {
	switch {
	case drop != occurrence.NoReason:
		return "drop " + string(drop)
	case budget != nil:
		return "budget " + budget.Name()
	default:
		return "none"
	}
}

func TestFirstIntakeRuleThatMatchesDecides(t *testing.T) {
	const warning, pod, failing = `event.type == "Warning"`, `event.involvedObject.kind == "Pod"`, `event.metadata.labels["a"] == ""`
	event := &corev1.Event{Type: "Warning", InvolvedObject: corev1.ObjectReference{Kind: "Pod"}}
	for name, test := range map[string]struct {
		rules            []v1alpha1.IntakeRule
		results, decided string
	}{
		"no rules":                       {nil, "", "none"},
		"the first one drops":            {[]v1alpha1.IntakeRule{drops("w", warning), drops("p", pod)}, "match not_evaluated", "drop w"},
		"the first one has a budget":     {[]v1alpha1.IntakeRule{budgets("w", warning, 2, "1/60"), drops("p", pod)}, "match not_evaluated", "budget w"},
		"the second one matches":         {[]v1alpha1.IntakeRule{drops("w", "!("+warning+")"), drops("p", pod)}, "no_match match", "drop p"},
		"none matches":                   {[]v1alpha1.IntakeRule{drops("w", "false")}, "no_match", "none"},
		"a dry run decides nothing":      {[]v1alpha1.IntakeRule{dry(drops("w", warning))}, "match", "none"},
		"nor for the rules after it":     {[]v1alpha1.IntakeRule{dry(drops("w", warning)), dry(budgets("b", pod, 1, "1")), drops("p", pod)}, "match match match", "drop p"},
		"an error does not match":        {[]v1alpha1.IntakeRule{drops("f", failing), budgets("p", pod, 1, "unlimited")}, "error match", "budget p"},
		"nothing is evaluated after one": {[]v1alpha1.IntakeRule{drops("w", warning), dry(drops("p", pod))}, "match not_evaluated", "drop w"},
	} {
		i, set := using(t, nil, test.rules...)
		results, decided := outcome(set.Intake(event))
		if results != test.results || decided != test.decided {
			t.Errorf("%s: %s, %s; want %s, %s", name, results, decided, test.results, test.decided)
		}
		if got := decision(i.Decide(event, 1, nil)); got != test.decided {
			t.Errorf("%s: Decide: %s, want %s", name, got, test.decided)
		}
	}
}

// What a rule in dry run would do is reported, whatever another rule does.
func TestDryRunsReportWhatTheyWouldDo(t *testing.T) {
	i, _ := using(t, nil, dry(drops("a", "true")), dry(drops("b", "false")), dry(budgets("c", "true", 1, "1")), drops("d", "true"), dry(drops("e", "true")))
	var got []string
	if drop, _ := i.Decide(&corev1.Event{}, 1, func(rule, action string) { got = append(got, rule+" "+action) }); drop != "d" {
		t.Errorf("dropped by %q", drop)
	}
	if want := []string{"a would_drop", "c would_budget"}; !slices.Equal(got, want) {
		t.Errorf("reported %q, want %q", got, want)
	}
}

func TestBudgetIsThatOfItsRule(t *testing.T) {
	i, _ := using(t, nil, budgets("slow", `event.reason == "a"`, 3, "1/600"))
	_, b := i.Decide(&corev1.Event{Reason: "a"}, 1, nil)
	if b == nil || b.Name() != "slow" || b.Burst() != 3 || b.QPS() != 1./600 {
		t.Errorf("%+v", b)
	}
	i.Use(mustCompile(t, &v1alpha1.EventdConfiguration{}))
	if drop, b := i.Decide(&corev1.Event{Reason: "a"}, 1, nil); drop != "" || b != nil {
		t.Errorf("%s %+v without rules", drop, b)
	}
}

func TestWrongIntakeRulesAreNamed(t *testing.T) {
	long := `event.message.matches("` + strings.Repeat("a", 380) + `")` // close to the limit of one
	var many []v1alpha1.IntakeRule
	for i := range 20 {
		many = append(many, drops(fmt.Sprint("r", i), long))
	}
	_, err := Compile(&v1alpha1.EventdConfiguration{Intake: many[:10]})
	if err != nil {
		t.Errorf("10 long rules: %v", err)
	}
	_, err = Compile(&v1alpha1.EventdConfiguration{Intake: many})
	if err == nil || !strings.Contains(err.Error(), "intake: Invalid value: the rules may cost ") || !strings.Contains(err.Error(), "and 100000 is the limit") {
		t.Errorf("20 long rules: %v", err)
	}
	_, err = Compile(&v1alpha1.EventdConfiguration{
		Intake: []v1alpha1.IntakeRule{drops("a", `true`), drops("b", `event.typ == ""`), drops("c", ``)},
		Routes: []v1alpha1.Route{{Name: "r", Match: "event.mess"}},
	})
	var all utilerrors.Aggregate
	if !errors.As(err, &all) || len(all.Errors()) != 3 || !strings.Contains(err.Error(), "intake[1].match: Invalid value: 1:6: undefined field 'typ'") {
		t.Errorf("%v", err)
	}
}

// Once an Event has spent the budget of all rules, the rest does not match.
func TestRulesTogetherHaveABudget(t *testing.T) {
	large := &corev1.Event{Message: strings.Repeat("failed x", 10<<10)}
	costly := `event.message.matches("(?i)^(.*back-off|.*failed) .* (image|container|pod)$")` // ends over budget
	var rules []v1alpha1.IntakeRule
	for i := range 63 {
		rules = append(rules, drops(fmt.Sprint("r", i), costly))
	}
	rules = append(rules, drops("last", "true"))
	i, set := using(t, nil, rules...)
	evaluations := set.Intake(large)
	ran := 0
	for _, e := range evaluations {
		if e.Result != OverBudget {
			t.Fatalf("%+v", e)
		}
		if !errors.Is(e.Err, errIntakeCost) {
			ran++
		}
	}
	if ran < 1 || ran > MaxIntakeCost/MaxCost {
		t.Errorf("%d rules were evaluated", ran)
	}
	if drop, _ := i.Decide(large, 1, nil); drop != "" {
		t.Errorf("dropped by %s", drop)
	}
	if drop, _ := i.Decide(&corev1.Event{Message: "an Event of usual size"}, 1, nil); drop != "last" {
		t.Errorf("a usual Event is dropped by %q", drop)
	}
}

// What dry runs spend is not missing for the rules after them.
func TestDryRunsSpendNothingOfOtherRules(t *testing.T) {
	large := &corev1.Event{Message: strings.Repeat("failed x", 10<<10)}
	costly := `event.message.matches("(?i)^(.*back-off|.*failed) .* (image|container|pod)$")` // ends over budget
	var rules []v1alpha1.IntakeRule
	for i := range 30 {
		rules = append(rules, dry(drops(fmt.Sprint("r", i), costly)))
	}
	rules = append(rules, drops("last", "true"), dry(drops("never", "true")))
	i, set := using(t, nil, rules...)
	if drop, _ := i.Decide(large, 1, nil); drop != "last" {
		t.Errorf("dropped by %q", drop)
	}
	evaluations := set.Intake(large)
	if first, end := evaluations[0], evaluations[29]; first.Result != OverBudget || errors.Is(first.Err, errIntakeCost) || !errors.Is(end.Err, errIntakeCost) {
		t.Errorf("the first dry run is %+v, and the last one %+v", first, end)
	}
	if last, never := evaluations[30], evaluations[31]; last.Result != Match || never.Result != NotEvaluated {
		t.Errorf("%+v, %+v", last, never)
	}
}

func TestIntakeCountersNeverGoBack(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	i, _ := using(t, registry, dry(drops("a", `event.reason == "a"`)), budgets("b", `event.message.matches("^(x+|xxxxxxxxxxxxxxxxxxxxxxx)+$") && event.metadata.labels["z"] == ""`, 1, "1"))
	i.Decide(&corev1.Event{Reason: "a"}, 3, nil)
	i.Decide(&corev1.Event{Message: "xx"}, 1, nil) // an error
	i.Decide(&corev1.Event{Message: strings.Repeat("x", 16<<10)}, 1, nil)
	want := func(lines ...string) {
		t.Helper()
		text := "# HELP eventd_intake_rule_evaluations_total Evaluations of intake rules by result: match, no_match, error, over_budget. The last two do not match.\n# TYPE eventd_intake_rule_evaluations_total counter\n"
		for _, line := range lines {
			text += "eventd_intake_rule_evaluations_total" + line + "\n"
		}
		if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "eventd_intake_rule_evaluations_total"); err != nil {
			t.Error(err)
		}
	}
	lines := []string{
		`{result="error",rule="a"} 0`, `{result="match",rule="a"} 1`, `{result="no_match",rule="a"} 2`, `{result="over_budget",rule="a"} 0`,
		`{result="error",rule="b"} 1`, `{result="match",rule="b"} 0`, `{result="no_match",rule="b"} 1`, `{result="over_budget",rule="b"} 1`,
	}
	want(lines...)
	i.Use(mustCompile(t, &v1alpha1.EventdConfiguration{}))
	i.Decide(&corev1.Event{Reason: "a"}, 1, nil)
	want(lines...)
	i.Use(mustCompile(t, &v1alpha1.EventdConfiguration{Intake: []v1alpha1.IntakeRule{drops("a", `true`)}})) // another rule of the same name
	i.Decide(&corev1.Event{}, 4, nil)
	i.Decide(&corev1.Event{}, 0, nil)
	lines[1] = `{result="match",rule="a"} 3`
	want(lines...)
	text := "# HELP eventd_intake_rule_occurrences_total Occurrences that match an intake rule, by what it does: drop, budget, or, as a dry run, would_drop, would_budget.\n# TYPE eventd_intake_rule_occurrences_total counter\n"
	for rule, counts := range map[string][4]int{"a": {0, 4, 0, 3}, "b": {}} {
		for n, action := range []string{"budget", "drop", "would_budget", "would_drop"} {
			text += fmt.Sprintf("eventd_intake_rule_occurrences_total{action=%q,rule=%q} %d\n", action, rule, counts[n])
		}
	}
	if err := testutil.GatherAndCompare(registry, strings.NewReader(text), "eventd_intake_rule_occurrences_total"); err != nil {
		t.Error(err)
	}
	if _, err := NewIntake(registry); err == nil {
		t.Error("registered twice")
	}
}

func TestNamesOfRulesWithCountersAreLimited(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	i, _ := using(t, registry)
	for n := range 2 * maxIntakeNames {
		i.Use(mustCompile(t, &v1alpha1.EventdConfiguration{Intake: []v1alpha1.IntakeRule{drops(fmt.Sprint("r", n), "true")}}))
		if drop, _ := i.Decide(&corev1.Event{}, 1, nil); drop != occurrence.Reason(fmt.Sprint("r", n)) {
			t.Fatalf("dropped by %q", drop)
		}
	}
	n, err := testutil.GatherAndCount(registry, "eventd_intake_rule_occurrences_total")
	if want := (maxIntakeNames + 1) * len(actions); n != want || err != nil {
		t.Errorf("%d series, want %d: %v", n, want, err)
	}
	if got := i.counts[""].occurrences[0].Load(); got != maxIntakeNames {
		t.Errorf("the rest has dropped %d", got)
	}
}

// Rules are replaced while requests are decided: each by one set as a whole.
func TestSetsAreReplacedWhileRequestsAreDecided(t *testing.T) {
	i, first := using(t, nil, drops("a", `event.reason == "x"`), drops("b", "true"))
	second := mustCompile(t, &v1alpha1.EventdConfiguration{Intake: []v1alpha1.IntakeRule{drops("c", `event.reason == "x"`), drops("d", "true")}})
	none := mustCompile(t, &v1alpha1.EventdConfiguration{})
	var deciding sync.WaitGroup
	counts := make([]map[occurrence.Reason]int64, 4)
	for n := range counts {
		counts[n] = map[occurrence.Reason]int64{}
		deciding.Go(func() {
			for range 300 {
				drop, _ := i.Decide(&corev1.Event{Reason: "y"}, 1, nil)
				counts[n][drop]++
			}
		})
	}
	for n := range 300 {
		i.Use([]*Set{first, second, none}[n%3])
	}
	deciding.Wait()
	total := map[occurrence.Reason]int64{}
	for _, c := range counts {
		for drop, n := range c {
			total[drop] += n
		}
	}
	got := map[occurrence.Reason]int64{"": total[""]}
	for _, name := range []string{"a", "b", "c", "d"} {
		if c := i.counts[name]; c != nil && c.occurrences[0].Load() > 0 {
			got[occurrence.Reason(name)] = int64(c.occurrences[0].Load())
		}
	}
	if total[""] == 0 {
		delete(got, "")
	}
	if diff := cmp.Diff(total, got); diff != "" {
		t.Error(diff)
	}
}

// wantIntakeConsistent checks that Decide decides as Intake does.
func wantIntakeConsistent(t testing.TB, set *Set, event *corev1.Event) {
	t.Helper()
	i, err := NewIntake(nil)
	if err != nil {
		t.Fatal(err)
	}
	i.Use(set)
	_, want := outcome(set.Intake(event))
	if got := decision(i.Decide(event, 1, nil)); got != want {
		t.Errorf("Decide: %s, Intake: %s", got, want)
	}
}
