package main

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"os"
)

// table is the table of docs/sizing.md.
func (r results) table() []byte {
	var b bytes.Buffer
	b.WriteString("| situation | nodes | Events per second | cores | memory, MiB | writes per second | reviews per second | answered by default limits |\n")
	b.WriteString("|---|--:|--:|--:|--:|--:|--:|--:|\n")
	for _, s := range situations {
		for _, nodes := range sizes {
			row, ok := r.of(nameOf(s.name, nodes, raised))
			limited, both := r.of(nameOf(s.name, nodes, byDefault))
			if !ok || !both { // only a part was measured
				continue
			}
			cores := fmt.Sprintf("%.2f", row.cores())
			if row.projected() {
				cores += fmt.Sprintf(" (%.0f/s)", row.Offered*row.Answered)
			}
			fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %s | %s | %s |\n", s.name, thousands(float64(nodes)), thousands(row.Reported), cores,
				thousands(row.PeakBytes/(1<<20)), thousands(row.Writes*row.Reported), thousands(row.NeededReviews), percent(limited.Answered))
		}
	}
	return b.Bytes()
}

// percent never rounds up to all.
func percent(share float64) string { return fmt.Sprintf("%.0f %%", math.Floor(100*share)) }

// thousands writes a number with two significant digits or more, and separators.
func thousands(v float64) string {
	n := int64(math.Round(v))
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%d,%03d", n/1000, n%1000)
}

// The table of docs/sizing.md is between these lines.
const tableBegins, tableEnds = "<!-- make scale -->\n", "<!-- end of make scale -->\n"

// replaceTable replaces the table of a page.
func replaceTable(file string, table []byte) error {
	page, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	before, rest, begins := bytes.Cut(page, []byte(tableBegins))
	_, after, ends := bytes.Cut(rest, []byte(tableEnds))
	if !begins || !ends {
		return errors.New(file + " has no place for the table")
	}
	return os.WriteFile(file, bytes.Join([][]byte{before, []byte(tableBegins), table, []byte(tableEnds), after}, nil), 0o644)
}
