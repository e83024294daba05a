package main

import (
	"flag"
	"fmt"
	"io"
	"strings"
	"time"
)

// serverOptions are the flags of the control plane itself.
type serverOptions struct {
	port               int
	etcdPort           int
	dataDir            string
	kubeconfig         string
	eventTTL           time.Duration
	etcdNoFsync        bool
	exitOnStdinEOF     bool
	removeDirOnEOF     bool
	verbosity          int
	extraAPIServerArgs []string
}

// parseServerOptions parses args. Usage is written to usage only when it is
// asked for: a wrong flag is answered with one line, not with a page.
func parseServerOptions(args []string, usage io.Writer) (serverOptions, error) {
	var o serverOptions
	fs := newFlagSet("controlplane")
	fs.IntVar(&o.port, "port", 0, "`port` of the kube-apiserver on 127.0.0.1; 0 takes a free one")
	fs.IntVar(&o.etcdPort, "etcd-port", 0, "`port` of etcd on 127.0.0.1; 0 takes a free one")
	fs.StringVar(&o.dataDir, "data-dir", "", "`directory` of all state; it is kept, and a restart continues with it (default: a new temporary directory, removed at the end)")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "`file` to write the administrator's kubeconfig to, once ready (default: admin.kubeconfig in the data directory)")
	fs.DurationVar(&o.eventTTL, "event-ttl", time.Hour, "how long the kube-apiserver keeps an Event after its last write")
	fs.BoolVar(&o.etcdNoFsync, "etcd-unsafe-no-fsync", true, "do not fsync in etcd: an end of the process loses nothing, a crash of the machine may")
	fs.BoolVar(&o.exitOnStdinEOF, "exit-on-stdin-eof", false, "end when stdin is closed, and so with a parent that holds the other end of a pipe")
	fs.BoolVar(&o.removeDirOnEOF, "remove-data-dir-on-stdin-eof", false, "remove the named data directory too when stdin is closed: it belongs to the parent")
	fs.IntVar(&o.verbosity, "v", 0, "log verbosity of the kube-apiserver; 0 logs warnings and errors only")
	fs.Func("apiserver-arg", "further `flag` for the kube-apiserver, such as --apiserver-arg=--audit-log-path=FILE; may be repeated", func(arg string) error {
		if !strings.HasPrefix(arg, "--") {
			return fmt.Errorf("must be a kube-apiserver flag that starts with --")
		}
		o.extraAPIServerArgs = append(o.extraAPIServerArgs, arg)
		return nil
	})
	if err := parseFlags(fs, args, usage); err != nil {
		return o, err
	}
	return o, o.validate()
}

func (o serverOptions) validate() error {
	for name, port := range map[string]int{"--port": o.port, "--etcd-port": o.etcdPort} {
		if port < 0 || port > 65535 {
			return fmt.Errorf("%s must be between 0 and 65535, got %d", name, port)
		}
	}
	if o.eventTTL < time.Second {
		return fmt.Errorf("--event-ttl must be at least 1s, got %s", o.eventTTL)
	}
	if o.verbosity < 0 {
		return fmt.Errorf("-v must not be negative, got %d", o.verbosity)
	}
	if o.removeDirOnEOF && !o.exitOnStdinEOF {
		return fmt.Errorf("--remove-data-dir-on-stdin-eof needs --exit-on-stdin-eof")
	}
	return nil
}

func newFlagSet(name string) *flag.FlagSet {
	fs := flag.NewFlagSet(name, flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	return fs
}

func parseFlags(fs *flag.FlagSet, args []string, usage io.Writer) error {
	err := fs.Parse(args)
	if err == flag.ErrHelp {
		fmt.Fprintf(usage, "Usage of %s:\n", fs.Name())
		fs.SetOutput(usage)
		fs.PrintDefaults()
		return err
	}
	if err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("unexpected argument %q", fs.Arg(0))
	}
	return err
}
