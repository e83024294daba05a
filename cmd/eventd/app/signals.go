package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// signalContext returns a context that ends with the first SIGINT or SIGTERM.
// The second one ends the process. It is for the whole life of a process: there
// is no way to stop it.
func signalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	// Room for both: a signal that finds no room is lost.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		cancel(fmt.Errorf("%v", <-signals))
		klog.ErrorS(nil, "Ending at once, without writing what is pending", "reason", "second signal: "+(<-signals).String())
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}()
	return ctx
}
