// Command run is the main job of this repository on real input, as "make run"
// does it: a kube-apiserver, two replicas of eventd that write to it with the
// rights of deploy/, an unmodified client-go client that reports to each of them,
// and a view of the result. One of the two leads, and the other one forwards to it. The leader delivers
// what is stored to two receivers, by the routes of configuration.yaml.
//
// The kube-apiserver is the local control plane, or that of the cluster of
// KUBECONFIG. At any end, what was started is stopped, and what was added is removed.
// Before that, the counts of the stored Events, and what has arrived at the receivers, are compared
// with eventd's metrics.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"
)

// settings are the flags. The Makefile fills them in.
type settings struct {
	eventd, feeder string
	rate           float64
	duration       time.Duration
}

func parse(args []string) (settings, error) {
	var s settings
	fs := flag.NewFlagSet("run", flag.ContinueOnError)
	fs.StringVar(&s.eventd, "eventd", "bin/eventd", "`path` of the eventd to run")
	fs.StringVar(&s.feeder, "feeder", "bin/feeder", "`path` of the client that feeds it")
	fs.Float64Var(&s.rate, "rate", 20, "how many things happen per second")
	fs.DurationVar(&s.duration, "duration", 0, "when to end; 0 is not before Ctrl-C")
	if err := fs.Parse(args); err != nil {
		return s, err
	}
	if fs.NArg() > 0 {
		return s, fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return s, nil
}

func main() {
	s, err := parse(os.Args[1:])
	if err == nil {
		ctx, abort := interrupts()
		err = run(ctx, abort, s)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "make run: %v\n", err)
		os.Exit(1)
	}
}

// interrupts returns a context that the first signal ends, and one that the
// second signal ends. A closed terminal is such a signal too. So is a closed
// pipe, as of "make run | head", but every further line makes that one again.
func interrupts() (first, second context.Context) {
	first, interrupt := context.WithCancelCause(context.Background())
	second, abort := context.WithCancelCause(context.Background())
	signals, noReader := make(chan os.Signal, 2), make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	signal.Notify(noReader, syscall.SIGPIPE)
	go func() {
		select {
		case s := <-signals:
			interrupt(fmt.Errorf("%v", s))
		case s := <-noReader:
			interrupt(fmt.Errorf("%v", s))
		}
		abort(fmt.Errorf("second signal: %v", <-signals))
	}()
	return first, second
}

// run runs all steps, and undoes them in the reverse order, after a failure, too.
func run(ctx, abort context.Context, s settings) (err error) {
	dir, err := os.MkdirTemp("", "eventd-run-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	cluster, err := openCluster(ctx)
	if err != nil {
		return interrupted(ctx, err)
	}
	defer func() { err = errors.Join(err, cluster.close(abort)) }()

	if err := cluster.prepare(ctx); err != nil {
		return interrupted(ctx, err)
	}
	to := newDestination()
	if err := to.start(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.close()) }()
	flags, err := writeConfiguration(filepath.Join(dir, "configuration.yaml"), to)
	if err != nil {
		return err
	}
	say("the receivers %s and %s deliver to %s, by hack/run/configuration.yaml", archive, pager, to.url)
	say("starting %d replicas of eventd", replicas)
	eventds, err := startReplicas(ctx, abort, cluster, s.eventd, dir, append(flags, historyBytes))
	defer func() { err = errors.Join(err, stop(abort, processesOf(eventds)...)) }()
	if err != nil {
		return interrupted(ctx, err)
	}
	return interrupted(ctx, show(ctx, abort, cluster, eventds, to, s, dir))
}

// historyBytes has every replica keep what it observes, for the page and kubectl eventd.
const historyBytes = "--history-bytes=64Mi"

// interrupted drops an error that Ctrl-C has caused.
func interrupted(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

func say(format string, args ...any) { fmt.Printf("• "+format+"\n", args...) }
