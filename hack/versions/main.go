// Command versions runs some tests of each part of eventd against kube-apiservers of several minor versions of
// Kubernetes, and prints a table of the results. It ends with exit code 1 if a test does not pass.
//
//	make versions                              # all versions
//	make versions VERSIONSFLAGS=-only=v1.35    # those that begin with this
//
// The control planes are test/controlplane, compiled with the modules of each version. They and the output of the
// tests are kept in .cache/versions.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"
)

// versions are those of k8s.io/kubernetes, the last one that of test/controlplane. README.md and docs/deployment.md
// name them.
var versions = []string{"v1.34.4", "v1.35.4", "v1.36.3", "v1.37.2"}

var only = flag.String("only", "", "test only `versions` that begin with this, such as v1.35")

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "versions:", err)
		os.Exit(1)
	}
}

// run works in the folder of the repository.
func run(ctx context.Context) error {
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	r := runner{root: root, cache: filepath.Join(root, ".cache", "versions")}
	if err := r.compile(ctx); err != nil {
		return err
	}
	var results []result
	for _, version := range versions {
		if !strings.HasPrefix(version, *only) {
			continue
		}
		fmt.Fprintf(os.Stderr, "• %s\n", version)
		binary, err := r.controlPlane(ctx, version)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			results = append(results, result{version: version, part: "control plane", failed: []string{"it cannot be built"}})
			continue
		}
		for _, part := range suite {
			result := r.test(ctx, version, binary, part)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			fmt.Fprintf(os.Stderr, "  %s: %s\n", part.name, result.text())
			results = append(results, result)
		}
	}
	return report(os.Stdout, results)
}

// result is that of a part of the suite.
type result struct {
	version, part, log string
	tests              int
	failed             []string
	took               time.Duration
}

func (r result) text() string {
	if len(r.failed) > 0 {
		return "FAILED"
	}
	return "ok"
}

// report prints the table, and returns an error that names what did not pass.
func report(w io.Writer, results []result) error {
	if len(results) == 0 {
		return fmt.Errorf("no version begins with %s", *only)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MINOR\tVERSION\tPART\tTESTS\tRESULT\tSECONDS")
	var err error
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%s\t%s\t%d\t%s\t%.0f\n", minor(r.version), r.version, r.part, r.tests, r.text(), r.took.Seconds())
		if len(r.failed) > 0 {
			err = errors.Join(err, fmt.Errorf("%s, %s: %s %s", r.version, r.part, strings.Join(r.failed, ", "), r.log))
		}
	}
	return errors.Join(table.Flush(), err)
}

// minor is 1.36 of v1.36.3.
func minor(version string) string {
	return version[1:strings.LastIndexByte(version, '.')]
}
