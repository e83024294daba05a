// Command delivery measures how eventd delivers the Events of a kube-apiserver, which it starts, to OTLP
// over HTTP, in three parts:
//
//   - compare: side by side with the OpenTelemetry collector's receivers k8s_events and k8sobjects, with and
//     without kills;
//   - burst: 145,259 Events in five minutes, and what a watch costs the kube-apiserver;
//   - faults: a receiver that is away, a slow one and a faulty one beside a healthy one.
//
// "make bench-delivery" runs it. All three take 35 minutes; -only chooses one. Figures move with the machine,
// and with what else it does: those of one run are to be compared. The CPU time and the memory of processes
// are known on Linux only. hack/bench/collector says which collector it is.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

var (
	eventdBinary    = flag.String("eventd", "bin/eventd", "the eventd to run, a `file`")
	collectorBinary = flag.String("collector", os.Getenv("EVENTD_COLLECTOR"), "the collector to run, a `file`, which test/collector/build.sh hack/bench/collector builds")
	only            = flag.String("only", "", "measure only this `part`: compare, burst or faults")
	turns           = flag.Int("turns", 1, "how often each side of compare has its turn, and how many pairs burst makes")
	minutes         = flag.Float64("minutes", 12, "how long the receivers of faults have theirs")
)

func main() {
	flag.Parse()
	klog.SetLogger(logr.Discard()) // client-go's, about requests to processes that are killed
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := bench(ctx); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bench prints each part as it ends.
func bench(ctx context.Context) error {
	note("load %s at the beginning", loadAverage())
	known := false
	for _, part := range []struct {
		name string
		run  func() error
	}{
		{"compare", func() error { return compare(ctx, os.Stdout, *turns) }},
		{"burst", func() error { return burst(ctx, os.Stdout, *turns) }},
		{"faults", func() error { return faults(ctx, os.Stdout, time.Duration(*minutes*float64(time.Minute))) }},
	} {
		if *only != "" && *only != part.name {
			continue
		}
		known = true
		if err := part.run(); err != nil {
			return fmt.Errorf("%s: %w", part.name, err)
		}
	}
	if !known {
		return fmt.Errorf("-only=%s is none of compare, burst and faults", *only)
	}
	return nil
}
