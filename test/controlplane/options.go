package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// options are the flags of the control plane itself.
type options struct {
	port           int
	dataDir        string
	exitOnStdinEOF bool
	apiServerArgs  []string
	address        string
	// names are further subjects of the kube-apiserver's certificate, nodes the names of kubelets.
	names, nodes []string
}

// parseOptions parses args. A wrong flag is answered with one line, not with all of the
// usage.
func parseOptions(args []string) (o options, err error) {
	fs := flag.NewFlagSet("controlplane", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.address, "address", "127.0.0.1", "IP `address` of the kube-apiserver")
	fs.IntVar(&o.port, "port", 0, "`port` of the kube-apiserver; 0 takes a free one")
	fs.Var((*list)(&o.names), "san", "further `name` or IP address in the certificate of the kube-apiserver; may be repeated")
	fs.Var((*list)(&o.nodes), "node", "`name` of a node; may be repeated. Controllers and kubelets are expected then: there are certificates for them, and no admission plugin is off")
	fs.StringVar(&o.dataDir, "data-dir", "", "`directory` of all state; a restart continues with it")
	fs.BoolVar(&o.exitOnStdinEOF, "exit-on-stdin-eof", false, "end when stdin is closed, and remove the data directory: both belong to the parent")
	fs.Var((*list)(&o.apiServerArgs), "apiserver-arg", "further `flag` for the kube-apiserver, such as --apiserver-arg=--audit-log-path=FILE; may be repeated")
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

// list is a flag that may be repeated.
type list []string

func (l *list) String() string { return strings.Join(*l, ",") }

func (l *list) Set(value string) error {
	*l = append(*l, value)
	return nil
}
