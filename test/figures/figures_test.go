package figures

import (
	"bytes"
	"errors"
	"strings"
	"testing"
)

func TestTableIsPrintedWithWhatWasAdded(t *testing.T) {
	table := &Table{title: "Outages", columns: []string{"length", "lost"}}
	table.Add("1m", 0)
	table.Add("10s", int64(12))
	var out bytes.Buffer
	if err := table.write(&out); err != nil {
		t.Fatal(err)
	}
	const want = "\nOutages\n  length  lost\n  1m      0\n  10s     12\n"
	if out.String() != want {
		t.Errorf("printed is %q, want %q", out.String(), want)
	}
}

func TestTableWithoutRowsIsNotPrinted(t *testing.T) {
	var out bytes.Buffer
	if err := (&Table{title: "Outages"}).write(&out); err != nil || out.Len() != 0 {
		t.Errorf("printed is %q, %v", out.String(), err)
	}
}

func TestRowThatDoesNotFitIsTheTestsError(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("a row with a cell too few is taken")
		}
	}()
	(&Table{title: "Outages", columns: []string{"length", "lost"}}).Add("1m")
}

func TestTableThatCannotBePrintedIsAnError(t *testing.T) {
	table := &Table{title: "Outages", columns: []string{"lost"}}
	table.Add(0)
	if err := table.write(broken{}); err == nil {
		t.Error("nobody says that nothing was printed")
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("broken") }

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

func TestRunnerPassesTheResultOn(t *testing.T) {
	for _, code := range []int{0, 1} {
		if got := Runner(result(code)).Run(); got != code {
			t.Errorf("%d became %d", code, got)
		}
	}
	var out bytes.Buffer
	if err := writeAll(&out); err != nil || strings.TrimSpace(out.String()) != "" {
		t.Errorf("printed without tables is %q, %v", out.String(), err)
	}
}

type result int

func (r result) Run() int { return int(r) }
