package main

import (
	"flag"
	"strings"
	"testing"

	"github.com/go-logr/logr"
	"go.uber.org/goleak"
	"k8s.io/klog/v2"
)

func TestMain(m *testing.M) {
	klog.SetLogger(logr.Discard()) // once: client-go's goroutines outlive the tests that start them
	goleak.VerifyTestMain(m)
}

func TestEveryComparisonRunsOnBothSides(t *testing.T) {
	if err := flag.Set("test.benchtime", "1x"); err != nil {
		t.Fatal(err)
	}
	for _, c := range everything() {
		t.Run(c.work, func(t *testing.T) {
			for _, side := range []func(*testing.B){c.clientGo, c.eventd} {
				result := testing.Benchmark(side)
				if result.N != 1 || costOf(result, c.occurrences).ns <= 0 {
					t.Errorf("measured %+v", result)
				}
			}
		})
	}
}

func TestGoalIsReachedByTheRatioAndTheAllocations(t *testing.T) {
	within := comparison{goal: goal{ratio: 1. / 4, allocs: 3}}
	for _, test := range []struct {
		row  row
		want string
	}{
		{row{ratio: 1}, ""},
		{row{comparison: within, ratio: 0.25, eventd: cost{allocs: 3}}, "reached"},
		{row{comparison: within, ratio: 0.2501, eventd: cost{allocs: 3}}, "NOT REACHED"},
		{row{comparison: within, ratio: 0.1, eventd: cost{allocs: 4}}, "NOT REACHED"},
	} {
		if got := verdict(test.row); got != test.want {
			t.Errorf("%+v is %q, want %q", test.row, got, test.want)
		}
	}
}

func TestRatiosAreWrittenAsTheGoalsAre(t *testing.T) {
	for ratio, want := range map[float64]string{
		1. / 200: "1/200", 1. / 8: "1/8", 1. / 4: "1/4", 0.2501: "1/3.9", 0.2439: "1/4.1",
		1. / 199.9: "1/199", 0.66: "0.66", 2.414: "2.41",
	} {
		if got := fraction(ratio); got != want {
			t.Errorf("%v is written %s, want %s", ratio, got, want)
		}
	}
}

func TestTableHasARowForEachComparison(t *testing.T) {
	var out strings.Builder
	write(&out, []row{
		{comparison: comparison{work: "one"}, ratio: 2, clientGo: cost{ns: 5}, eventd: cost{ns: 10}},
		{comparison: comparison{work: "another", goal: goal{ratio: 1. / 4, allocs: 3}}, ratio: 0.3},
	})
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if n := len(lines); n != 5 || !strings.Contains(lines[3], "2.00") || !strings.Contains(lines[4], "NOT REACHED") {
		t.Errorf("written:\n%s", out.String())
	}
}

func TestMedianIsThatOfTheTimes(t *testing.T) {
	if got := median([]cost{{ns: 3, allocs: 1}, {ns: 1, allocs: 2}, {ns: 2, allocs: 3}}); got != (cost{ns: 2, allocs: 3}) {
		t.Errorf("median %+v", got)
	}
}
