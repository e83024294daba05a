package terminal

import (
	"fmt"
	"io"
	"strings"

	"k8s.io/cli-runtime/pkg/printers"
)

// Table writes rows in columns, as kubectl get does. It is for one goroutine.
type Table struct {
	out   io.Writer // a tabwriter
	flush func() error
	widen func(widths []int)
}

// NewTable returns a table with a header, unless that is empty.
func NewTable(out io.Writer, header ...string) *Table {
	w := printers.GetNewTabWriter(out)
	t := &Table{w, w.Flush, func(widths []int) { w.SetRememberedWidths(widths) }}
	if len(header) > 0 {
		t.write(header)
	}
	return t
}

// Row adds a row. Its cells may contain anything.
func (t *Table) Row(cells ...string) {
	for i, cell := range cells {
		if cells[i] = Text(cell); cell == "" {
			cells[i] = "<none>"
		}
	}
	t.write(cells)
}

func (t *Table) write(cells []string) { _, _ = fmt.Fprintln(t.out, strings.Join(cells, "\t")) }

// Widen sets the least widths of the first columns, the space behind them included. It is called before Flush.
func (t *Table) Widen(widths ...int) { t.widen(widths) }

// Flush writes the rows. Later ones keep the widths of the columns, unless they are wider.
func (t *Table) Flush() error { return t.flush() }
