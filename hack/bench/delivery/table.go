package main

import (
	"fmt"
	"io"
	"text/tabwriter"
	"time"
)

func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// mebibytes is empty if the number is not known.
func mebibytes(bytes int64) string {
	if bytes == 0 {
		return ""
	}
	return fmt.Sprintf("%d MiB", bytes>>20)
}

func newTable(w io.Writer, head string) *tabwriter.Writer {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(out, head)
	return out
}

func writeComparison(w io.Writer, entries []entry) {
	fmt.Fprintf(w, "\nSide by side: %s, to OTLP over HTTP, in a cluster each; %d kills, or none.\n\n", fourThousand, kills)
	out := newTable(w, "side\tkills\tdelivered\tmissing\tfinals\trepeated\tp50\tp99\tCPU per 10,000\tpeak\tload")
	for _, e := range entries {
		cpu := ""
		if e.usage.peak > 0 {
			cpu = seconds(e.perTenThousand())
		}
		fmt.Fprintf(out, "%s\t%d\t%.2f %%\t%d\t%d\t%d\t%s\t%s\t%s\t%s\t%s\n", e.name, e.kills, 100*e.share(), e.missing, e.finals, e.repeated,
			milliseconds(e.percentile(50)), milliseconds(e.percentile(99)), cpu, mebibytes(e.usage.peak), e.load)
	}
	out.Flush()
	for _, a := range aims(entries) {
		fmt.Fprintln(w, a)
	}
}

func writeWatchCost(w io.Writer, with, without []usage) {
	fmt.Fprintf(w, "\nkube-apiserver and etcd, one process, during %s, pair by pair:\n\n", minuteOfBurst)
	out := newTable(w, "\tCPU\tpeak")
	for i := range with {
		for _, row := range []struct {
			name string
			of   usage
		}{{"eventd watches", with[i]}, {"without eventd", without[i]}} {
			fmt.Fprintf(out, "%s\t%s\t%s\n", row.name, seconds(row.of.cpu), mebibytes(row.of.peak))
		}
		fmt.Fprintf(out, "the watch adds\t%+.1f s\t%+d MiB\n", (with[i].cpu - without[i].cpu).Seconds(), (with[i].peak-without[i].peak)>>20)
	}
	out.Flush()
}

func writeFaults(w io.Writer, rows []account, alone []tally, load string) {
	fmt.Fprintf(w, "\nReceivers of one eventd with faults, load %s:\n\n", load)
	out := newTable(w, "receiver\tstored\tdelivered\tmissing\tgiven up\tlost\trepeated\tsuperseded\tgaps\tlongest lag\tcaught up after\tp50\tp99")
	for _, a := range rows {
		caughtUp := "never"
		if a.isUp {
			caughtUp = seconds(a.caughtUp)
		}
		fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%s\t%s\t%s\t%s\n", a.receiver, a.stored, a.delivered, a.missing, a.givenUp, a.lost(),
			a.repeated, a.superseded, a.gaps, seconds(a.longest), caughtUp, milliseconds(a.percentile(50)), milliseconds(a.percentile(99)))
	}
	out.Flush()
	for _, t := range alone {
		fmt.Fprintf(w, "the healthy one alone: p50 %s, p99 %s\n", milliseconds(t.percentile(50)), milliseconds(t.percentile(99)))
	}
}
