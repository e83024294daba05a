package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	os.Exit(mainCode(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// mainCode runs one command and returns the exit code of the process. An error
// is one line on stderr and exit code 1.
func mainCode(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	// A parent that dies takes the reading ends of our stdout and stderr with
	// it. Without this the next log line would kill the process with SIGPIPE,
	// before it has removed its directory.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()

	var err error
	if len(args) > 0 && args[0] == "token" {
		err = runToken(ctx, args[1:], stderr)
	} else {
		err = runServer(ctx, args, stdin, stdout, stderr)
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(stderr, "controlplane: %v\n", err)
		return 1
	}
	return 0
}

func runServer(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	opts, err := parseServerOptions(args, stderr)
	if err != nil {
		return err
	}
	return serve(ctx, opts, stdin, stdout)
}
