package app

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"k8s.io/klog/v2"
)

// signalContext returns a context that ends with the first SIGINT or SIGTERM. The
// second one ends the process. It cannot be stopped.
func signalContext() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	// A buffer for both signals: Notify drops a signal that does not fit.
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		cancel(fmt.Errorf("%v", <-signals))
		klog.ErrorS(nil, "Exiting at once: pending occurrences are not written", "reason", "second signal: "+(<-signals).String())
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}()
	return ctx
}
