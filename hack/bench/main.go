// Command bench measures eventd's stations beside client-go's, in one run, and
// prints a table of ratios. Absolute figures move with the machine and with what
// else it does; ratios of one run are what to compare. It takes about 75 seconds.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	testing.Init()
	only := flag.String("only", "", "measure only what has this in its name")
	flag.Parse()
	// client-go logs a whole Event for each that it drops. None is to be dropped
	// here; if one is, that must not become the time of the other side's turn.
	klog.SetLogger(logr.Discard())
	rows, err := measure(everything(), *only)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	write(os.Stdout, rows)
}

func everything() []comparison {
	return slices.Concat(correlating(), recording(), fanningOut())
}
