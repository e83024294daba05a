// Package figures collects the measurements of long tests, and prints them as tables
// when all tests of the package have ended.
//
//	var outages = figures.NewTable("An apiserver that is away", "writes/s", "lost")
//
//	func TestMain(m *testing.M) { os.Exit(figures.Runner(m).Run()) }
//
//	func TestOutage(t *testing.T) {
//		...
//		outages.Add(figures.Spread(rates...), lost)
//	}
//
// Figures are for people: a test asserts what must hold. go test shows the output of a
// package only if it tests the current directory (go test -C test/soak).
package figures

import (
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
)

// Table has a row per measurement. It is safe for concurrent use.
type Table struct {
	title   string
	columns []string

	mu   sync.Mutex
	rows [][]string
}

// tables of this test binary, in the order in which they were made.
var tables []*Table

// NewTable returns a table that Runner prints. It is for package variables, before the
// tests begin.
func NewTable(title string, columns ...string) *Table {
	t := &Table{title: title, columns: columns}
	tables = append(tables, t)
	return t
}

// Add adds a row, with a cell for each column.
func (t *Table) Add(cells ...any) {
	if len(cells) != len(t.columns) {
		panic(fmt.Sprintf("figures: %d cells in %q, which has %d columns", len(cells), t.title, len(t.columns)))
	}
	row := make([]string, len(cells))
	for i, c := range cells {
		row[i] = fmt.Sprint(c)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.rows = append(t.rows, row)
}

// write prints the title and the rows, if there are any.
func (t *Table) write(w io.Writer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.rows) == 0 {
		return
	}
	fmt.Fprintf(w, "\n%s\n", t.title)
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range append([][]string{t.columns}, t.rows...) {
		fmt.Fprintf(out, "  %s\n", strings.Join(row, "\t"))
	}
	out.Flush()
}

// TestRunner runs the tests of a package, as testing.M does.
type TestRunner interface{ Run() int }

// Runner returns a runner that runs m and then prints all tables that have rows.
func Runner(m TestRunner) TestRunner { return runner{m} }

type runner struct{ m TestRunner }

func (r runner) Run() int {
	code := r.m.Run()
	if slices.ContainsFunc(tables, func(t *Table) bool { return len(t.rows) > 0 }) {
		fmt.Printf("%s, %s/%s, %d CPUs\n", runtime.Version(), runtime.GOOS, runtime.GOARCH, runtime.GOMAXPROCS(0))
		for _, t := range tables {
			t.write(os.Stdout)
		}
		fmt.Println()
	}
	return code
}

// Spread is the median of some values, and between which the others lie. It is
// "" for none.
func Spread(values ...float64) string {
	if len(values) == 0 {
		return ""
	}
	sorted := slices.Sorted(slices.Values(values))
	median := (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
	if len(sorted) == 1 {
		return number(median)
	}
	return fmt.Sprintf("%s (%s–%s)", number(median), number(sorted[0]), number(sorted[len(sorted)-1]))
}

// number has three significant digits, or all digits before the point.
func number(v float64) string {
	switch {
	case v >= 100 || v <= -100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10 || v <= -10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}
