// Command release makes what is published of eventd from this checkout.
//
//	release image [-o FILE] [-platforms PLATFORMS] [-image-repository REPOSITORY] [-version VERSION] [-commit HASH] [-epoch SECONDS]
//	release push FILE REPOSITORY
//	release chart [-o FOLDER] [-version VERSION] [-epoch SECONDS]
//	release all -image-repository REPOSITORY [-o FOLDER] [-replace] [-version VERSION] [-commit HASH] [-epoch SECONDS]
//
// docs/release.md describes them.
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

// commands are those of the first argument.
var commands = map[string]func(context.Context, []string) error{
	"image": makeImage,
	"push":  pushImage,
	"chart": makeChart,
	"all":   makeRelease,
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) > 0 {
		if command, ok := commands[args[0]]; ok {
			return command(ctx, args[1:])
		}
	}
	return errors.New("the first argument is image, push, chart or all; -h after it shows its flags")
}

// parse reads the flags of a command. An error is one line, without the usage, which -h prints.
func parse(flags *flag.FlagSet, args []string) error {
	flags.SetOutput(io.Discard)
	err := flags.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		flags.SetOutput(os.Stdout)
		flags.Usage()
	}
	return err
}
