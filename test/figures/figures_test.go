package figures

import (
	"bytes"
	"testing"
)

func TestTableIsPrintedWithWhatWasAdded(t *testing.T) {
	table := &Table{title: "Outages", columns: []string{"length", "lost"}}
	var out bytes.Buffer
	table.write(&out)
	if out.Len() > 0 {
		t.Errorf("printed without rows is %q", out.String())
	}
	table.Add("1m", 0)
	table.Add("10s", int64(12))
	table.write(&out)
	if want := "\nOutages\n  length  lost\n  1m      0\n  10s     12\n"; out.String() != want {
		t.Errorf("printed is %q, want %q", out.String(), want)
	}
}

func TestSpread(t *testing.T) {
	for want, values := range map[string][]float64{
		"":                 nil,
		"5.00":             {5},
		"812 (790–1031)":   {1031, 790, 812},
		"1.50 (1.00–2.00)": {2, 1},
		"20.5 (0.25–1000)": {1000, 20.5, 0.25},
	} {
		if got := Spread(values...); got != want {
			t.Errorf("the spread of %v is %q, want %q", values, got, want)
		}
	}
}

// A package whose tests have failed must fail.
func TestRunnerReturnsTheResult(t *testing.T) {
	for _, code := range []int{0, 1} {
		if got := Runner(result(code)).Run(); got != code {
			t.Errorf("%d became %d", code, got)
		}
	}
}

type result int

func (r result) Run() int { return int(r) }
