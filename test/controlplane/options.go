package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
)

// options are the flags of the control plane itself.
type options struct {
	port           int
	dataDir        string
	exitOnStdinEOF bool
	apiServerArgs  []string
}

// parseOptions parses args. A wrong flag is answered with one line, not with all of the
// usage.
func parseOptions(args []string) (o options, err error) {
	fs := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&o.port, "port", 0, "`port` of the kube-apiserver on 127.0.0.1; 0 takes a free one")
	fs.StringVar(&o.dataDir, "data-dir", "", "`directory` of all state; a restart continues with it")
	fs.BoolVar(&o.exitOnStdinEOF, "exit-on-stdin-eof", false, "end when stdin is closed, and remove the data directory: both belong to the parent")
	fs.Func("apiserver-arg", "further `flag` for the kube-apiserver, such as --apiserver-arg=--audit-log-path=FILE; may be repeated", func(arg string) error {
		o.apiServerArgs = append(o.apiServerArgs, arg)
		return nil
	})
	err = fs.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fs.SetOutput(os.Stderr)
		fs.PrintDefaults()
	case err == nil && fs.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	case err == nil && o.dataDir == "":
		err = errors.New("--data-dir is required")
	}
	return o, err
}
