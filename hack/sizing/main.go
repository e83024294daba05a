// Command sizing prints how much memory an eventd with the given flags may take,
// what to give to its container, and how much it writes at most. Its flags are
// those of eventd.
//
//	go run ./hack/sizing --max-pending-bytes=1Gi --kube-api-qps=300
package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"strings"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/test/sizing"
)

func main() {
	out := bufio.NewWriter(os.Stdout)
	err := run(out, os.Args[1:])
	if err := errors.Join(err, out.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "sizing:", err)
		os.Exit(1)
	}
}

func run(w io.Writer, args []string) error {
	o := app.NewOptions()
	flags := pflag.NewFlagSet("sizing", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(args); err != nil {
		return err
	}
	if err := o.Validate(); err != nil {
		return err
	}
	parts := sizing.Memory(o)
	writeMemory(w, parts)
	writeAdvice(w, sizing.Advise(parts))
	if o.Takes() {
		writeRate(w, sizing.Writes(o))
	}
	return nil
}

func writeMemory(w io.Writer, parts []sizing.Part) {
	_, _ = fmt.Fprint(w, "| memory of | full of usual Events, MiB | whatever it is sent, MiB | flag |\n|---|--:|--:|---|\n")
	for _, p := range parts {
		var flags []string
		for _, flag := range p.Flags {
			flags = append(flags, "`--"+flag+"`")
		}
		_, _ = fmt.Fprintf(w, "| %s | %s | %s | %s |\n", p.What, mebibytes(p.Usual), mebibytes(p.Most), strings.Join(flags, ", "))
	}
	usual, most := sizing.Sum(parts)
	_, _ = fmt.Fprintf(w, "| **together** | **%s** | **%s** | |\n", mebibytes(usual), mebibytes(most))
}

func writeAdvice(w io.Writer, advice sizing.Advice) {
	_, _ = fmt.Fprintf(w, "\n`GOMEMLIMIT=%sB`, and a memory limit of `%s` for the container.\n", binary(advice.GoMemLimit), binary(advice.ContainerLimit))
}

func writeRate(w io.Writer, rate sizing.Rate) {
	_, _ = fmt.Fprintf(w, `
Writes to the apiserver, at most:

- %s per second (`+"`--kube-api-qps`"+`), %s at once after a quiet time (`+"`--kube-api-burst`"+`), %s in flight (`+"`--max-concurrent-writes`"+`), half as many more while some hang;
- %s at once for one source and object (`+"`--budget-burst`"+`), then %s per hour (`+"`--budget-qps`"+`);
- %s MiB of Events in etcd, if all are new, in the hour that they are kept.
`, number(rate.PerSecond), number(rate.Burst), number(rate.AtOnce),
		number(rate.SubjectBurst), number(rate.SubjectPerHour), number(rate.StoredBytes/(1<<20)))
}

func mebibytes(bytes int64) string { return number(float64(bytes) / (1 << 20)) }

// number has as many digits as say something.
func number(n float64) string {
	switch {
	case math.IsInf(n, 0):
		return "unlimited"
	case n < 10 && n != math.Trunc(n):
		return fmt.Sprintf("%.1f", n)
	default:
		return fmt.Sprintf("%.0f", n)
	}
}

func binary(bytes int64) string { return resource.NewQuantity(bytes, resource.BinarySI).String() }
