package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// main ends with exit code 1 and one line on stderr if there is an error.
func main() {
	// A parent that dies takes the reading ends of our stdout and stderr with
	// it. Without this the next log line would kill the process with SIGPIPE,
	// before it has removed its directory.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	opts, err := parseOptions(os.Args[1:])
	if err == nil {
		err = serve(ctx, opts)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "controlplane: %v\n", err)
		os.Exit(1)
	}
}
