package main

import (
	"context"
	"flag"
	"fmt"

	"github.com/eventd/eventd/hack/release/chart"
)

// makeChart packs the chart into a folder, and writes the path of the archive to standard output. The
// chart installs the image with the version as its tag, unless its values name another.
func makeChart(_ context.Context, args []string) error {
	var s source
	flags := flag.NewFlagSet("release chart", flag.ContinueOnError)
	folder := flags.String("o", "dist", "the `folder` for the archive")
	if err := s.parse(flags, args); err != nil {
		return err
	}
	file, err := chart.Pack(s.chart(), chart.Release{Version: s.version, Created: s.created}, *folder)
	if err != nil {
		return err
	}
	fmt.Println(file)
	return nil
}
