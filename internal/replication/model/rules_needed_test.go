package model

import (
	"strings"
	"testing"
)

// needed has for each rule a world in which the protocol without it breaks a property.
var needed = []struct {
	rule string
	bounds
	breaks string // part of the property
}{
	{"Ordered", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, disconnects: 1}}, "lost, though it was answered 202"},
	{"SendAll", bounds{processes: 2, alive: 2, occurrences: []occurrence{{awaited: true}, {}}, left: budget{moves: 1}}, "is raised to 2 without"},
	{"Snapshot", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1}}, "lost, though it was answered 202"},
	{"Replace", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{disconnects: 1}}, "holds 1 of L for ever"},
	{"Whole", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1, disconnects: 1}}, "lost, though it was answered 202"},
	{"Held", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1}}, "lost, though it was answered 202"},
	{"Unsent", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1, refusals: 1}}, "counted, though it was refused"},
	{"Cut", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, merges: 1}}, "counted twice"},
	{"Seal", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, merges: 1}}, "counted twice"},
	{"Mirror", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1}}, "counted twice"},
	{"Batch", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, merges: 1}}, "counted twice"},
	{"Sent", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1}}, "counted twice"},
	{"PushedOut", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{crashes: 1, moves: 1, others: 1, lostAnswers: 1}}, "counted twice"},
	{"Hand", bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 1}}, "lost, though it was answered 202"},
	{"Ended", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, merges: 1}}, "counted twice"},
	{"Keep", bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 2}}, "lost, though it was answered 202"},
	{"Newest", bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{crashes: 1}, atOnce: true}, "lost, though it was answered 202"},
	{"Empty", bounds{processes: 3, alive: 3, occurrences: anonymous(1), left: budget{crashes: 1}}, "holds 1 of L for ever"},
	{"Marks", bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{crashes: 1}, atOnce: true}, "knows that it is counted"},
	{"Own", bounds{processes: 2, alive: 2, occurrences: anonymous(1), left: budget{disconnects: 1}}, "knows that it is counted"},
	{"Names", bounds{processes: 2, alive: 2, occurrences: clients([2]uint8{1, 1}), left: budget{crashes: 1, names: 1, retries: 1}}, "knows that it is counted"},
	{"Totals", bounds{processes: 2, alive: 2, occurrences: twoTotals, left: budget{crashes: 1, moves: 1}}, "lost, though it was answered 202"},
}

func TestEachRuleIsNeeded(t *testing.T) {
	tried := map[string]bool{}
	for _, n := range needed {
		tried[n.rule] = true
		t.Run(n.rule, func(t *testing.T) { mustBreak(t, without(n.rule), n.bounds, n.breaks) })
	}
	for _, name := range ruleNames() {
		if !tried[name] {
			t.Errorf("rule %s is not tried", name)
		}
	}
}

func mustBreak(t *testing.T, r rules, b bounds, breaks string) {
	t.Helper()
	got := search(newWorld(r, b), breaks, maxStates)
	if !strings.Contains(got.wrong, breaks) {
		t.Fatalf("no history breaks %q: %s", breaks, got)
	}
	t.Logf("\n%s", got.trace())
}

// Alternatives that do not hold.
func TestAlternativesThatAreNotEnough(t *testing.T) {
	for _, a := range []struct {
		lacks, has string
		bounds
		breaks string
	}{
		// What was confirmed would be lost from the eighth leader on.
		{"PushedOut", "MissingUncertain", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{crashes: 1, moves: 1, others: 1}, after: "post, send L L s0, arrive L L s0, others s0"}, "lost, though it was answered 202"},
		{"Seal", "HoldsMore", bounds{processes: 3, alive: 3, occurrences: anonymous(2), left: budget{moves: 3, merges: 1}, atOnce: true, after: afterTwoTerms}, "counted twice"},
		{"Cut", "Inside", bounds{processes: 2, alive: 2, occurrences: anonymous(2), left: budget{moves: 1, merges: 1}}, "lost"},
		{"Totals", "OrphansFirst", bounds{processes: 2, alive: 2, occurrences: twoTotals, left: budget{crashes: 1, moves: 1}}, "lost, though it was answered 202"},
	} {
		t.Run(a.has+" for "+a.lacks, func(t *testing.T) {
			mustBreak(t, without(a.lacks).with(a.has), a.bounds, a.breaks)
		})
	}
}

// Alternatives that the protocol does not need: it holds without them, and with them.
func TestAlternativesThatAreNotNeeded(t *testing.T) {
	for _, name := range []string{"AskAgain", "ReadFirst", "OrphansFirst"} {
		b := bounds{processes: 2, alive: 2, occurrences: twoTotals, left: budget{crashes: 1, moves: 1}}
		if got := search(newWorld(protocol().with(name), b), "", maxStates); got.wrong != "" {
			t.Errorf("with %s:\n%s", name, got.trace())
		}
	}
}
