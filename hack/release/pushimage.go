package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/eventd/eventd/hack/release/image"
)

// pushImage copies an image from its file to a repository, and writes what names it there
// to standard output.
func pushImage(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("release push", flag.ContinueOnError)
	if err := parse(flags, args); err != nil {
		return err
	}
	if flags.NArg() != 2 || flags.Arg(1) == "" {
		return errors.New("the arguments are the FILE of the image and a REPOSITORY, such as registry.example/eventd (IMAGE_REPOSITORY of make push)")
	}
	reference, err := image.Push(ctx, flags.Arg(0), flags.Arg(1))
	if err != nil {
		return err
	}
	fmt.Println(reference)
	return nil
}
