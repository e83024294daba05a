package app

import (
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register" // --logging-format=json
	"k8s.io/component-base/term"
	"k8s.io/klog/v2"
)

// Main runs the command line of this process and returns its exit code. A wrong
// command line and a failed start are written to stderr as text. Later errors are
// logged in the format of --logging-format.
func Main(stderr io.Writer) int {
	err := cli.RunNoErrOutput(NewCommand())
	var failure runError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &failure):
		klog.ErrorS(errors.New(oneLine(failure.Error())), "eventd failed")
		logs.FlushLogs()
	default:
		for _, line := range lines(err) {
			_, _ = fmt.Fprintf(stderr, "eventd: %s\n", line)
		}
	}
	return 1
}

// runError is an error of a process that has started.
type runError struct{ error }

func (e runError) Unwrap() error { return e.error }

// NewCommand returns the command eventd. Execute returns at the end of the process.
func NewCommand() *cobra.Command {
	o := NewOptions()
	cmd := &cobra.Command{
		Use: "eventd",
		Long: `eventd accepts Kubernetes Events from all clients of a cluster, merges repeats, and
writes them to the apiserver. It serves the Kubernetes Events API: a client only
needs another server address.

"eventd config" checks and tries a file with rules, receivers and routes.`,
		// An error is one line, without the usage.
		SilenceUsage:  true,
		SilenceErrors: true,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: eventd takes flags only", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			if printVersion(cmd.Flags(), cmd.OutOrStdout()) {
				return nil
			}
			return runCommand(cmd, o)
		},
	}
	cmd.CompletionOptions.DisableDefaultCmd = true
	cmd.AddCommand(newConfigCommand())
	sets := o.Flags()
	for _, fs := range sets.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	columns, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, sets, columns)
	return cmd
}

func runCommand(cmd *cobra.Command, o *Options) error {
	if err := o.Validate(); err != nil {
		return err
	}
	cluster, err := loadConfig(o.Kubeconfig)
	if err != nil {
		return err
	}
	if err := o.checkPeerToken(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(o.Logs, nil); err != nil {
		return err
	}
	cliflag.PrintFlags(cmd.Flags())
	return Run(signalContext(), o, cluster)
}
