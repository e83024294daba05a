// Command scale simulates clusters of up to 15,000 nodes that report to one eventd, and measures what that
// takes: cores, memory, and writes per second. The apiserver is one in this process that answers at once, so
// that only eventd and its clients take the processors.
//
//	make scale                                # all rows, about 15 minutes on two cores
//	make scale SCALEFLAGS=-only=rollout       # those that have this in their names, such as
//	                                          # "rollout, 5000 nodes, default limits"
//
// Rows are kept in a file. When all of them are there, they become the table of docs/sizing.md and
// docs/images/scale.svg. It needs Linux, where each kubelet can have a loopback address of its own.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

var (
	binary     = flag.String("eventd", "bin/eventd", "the `file` to run")
	only       = flag.String("only", "", "measure only rows that have this in their `name`")
	ceiling    = flag.Float64("ceiling", 500, "occurrences per second that this machine can report: a situation with more is stretched in time")
	flags      = flag.String("flags", "", "more flags of eventd, separated by spaces")
	oneAddress = flag.Bool("one-address", false, "kubelets connect from one address, as behind a NAT")
	kept       = flag.String("rows", ".cache/scale.json", "`file` in which rows are kept")
	docs       = flag.String("docs", "docs", "`folder` of the table and the plot")
)

// sizes are the clusters, in nodes.
var sizes = []int{1000, 5000, 15000}

// The limits of a row: the default ones, or such that nothing is refused.
const byDefault, raised = "default limits", "raised limits"

func nameOf(situation string, nodes int, limits string) string {
	return fmt.Sprintf("%s, %d nodes, %s", situation, nodes, limits)
}

func (r row) name() string { return nameOf(r.Situation, r.Nodes, r.Limits) }

func main() {
	flag.Parse()
	klog.SetLogger(logr.Discard()) // client-go logs each request that it retries
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "scale:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	rows, err := load(*kept)
	if err != nil {
		return err
	}
	complete := true
	for _, s := range situations {
		for _, nodes := range sizes {
			for _, limits := range []string{byDefault, raised} {
				name := nameOf(s.name, nodes, limits)
				if _, ok := rows.of(name); !strings.Contains(name, *only) {
					complete = complete && ok
					continue
				}
				fmt.Fprintf(os.Stderr, "• %s\n", name)
				r, err := measure(ctx, s, nodes, limits)
				if err != nil {
					return fmt.Errorf("%s: %w", name, err)
				}
				fmt.Fprintf(os.Stderr, "  %s\n", r)
				rows = rows.with(r)
				if err := rows.save(*kept); err != nil {
					return err
				}
			}
		}
	}
	os.Stdout.Write(rows.table())
	if !complete {
		return nil
	}
	if err := replaceTable(filepath.Join(*docs, "sizing.md"), rows.table()); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(*docs, "images", "scale.svg"), rows.plot(), 0o644)
}

func measure(ctx context.Context, s situation, nodes int, limits string) (r row, err error) {
	err = withEventd(ctx, append(flagsFor(nodes, limits), strings.Fields(*flags)...), func(e *eventd) error {
		r, err = e.simulate(ctx, s, nodes, limits)
		return err
	})
	return r, err
}

// flagsFor are those of a cluster of a size. The number of connections is raised in any case: without that, most
// kubelets would not connect.
func flagsFor(nodes int, limits string) []string {
	out := []string{fmt.Sprintf("--max-connections=%d", 2048+nodes)}
	if limits == raised {
		out = append(out, "--kube-api-qps=unlimited", "--access-review-qps=unlimited",
			"--authorization-webhook-cache-authorized-ttl=5m", "--authorization-webhook-cache-unauthorized-ttl=5m")
	}
	return out
}
