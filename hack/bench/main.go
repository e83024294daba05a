// Command bench measures eventd beside client-go, in one run, and prints two tables
// of ratios: of its stages in memory, and of whole pipelines, in this process or in
// replicas, that write to a real kube-apiserver, which it starts. Absolute figures move
// with the machine and with what else it does; ratios of one run are what to compare.
//
// It takes fifteen minutes, or more if there is little of the processors left; -only
// chooses rows of either table by a part of their names.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

func main() {
	if os.Getenv(bareServerEnv) != "" {
		if err := serveBare(os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	testing.Init()
	only := flag.String("only", "", "measure only what has this in its name")
	flag.Parse()
	// client-go logs a whole Event for each that it drops. None is to be dropped
	// here; if one is, that must not become the time of the other side's turn.
	klog.SetLogger(logr.Discard())
	if err := bench(*only); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// bench prints what could be measured, even if something could not.
func bench(only string) error {
	rows, err := measure(everything(), only)
	if len(rows) > 0 {
		write(os.Stdout, rows)
	}
	if err != nil {
		return err
	}
	outcomes, err := try(context.Background(), againstAnAPIServer(), only)
	if len(outcomes) > 0 {
		writeOutcomes(os.Stdout, outcomes)
	}
	return err
}

func everything() []comparison {
	return slices.Concat(correlating(), recording(), fanningOut())
}
