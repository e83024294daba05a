// Package app has the commands of the plugin "kubectl eventd". They read query.eventd.io through
// cmd/kubectl-eventd/client, change nothing, and behave as kubectl: its flags, tables, formats, messages and
// exit codes. What clients have put into Events is escaped.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	_ "k8s.io/client-go/plugin/pkg/client/auth" // the auth providers that kubectl has
	"k8s.io/client-go/rest"
	"k8s.io/component-base/version"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// Main runs the command line of this process, and returns its exit code: 0, or 1 after an error. Ctrl-C ends
// what goes on until then.
func Main() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	streams := genericiooptions.IOStreams{In: os.Stdin, Out: os.Stdout, ErrOut: os.Stderr}
	rest.SetDefaultWarningHandler(rest.NewWarningWriter(streams.ErrOut, rest.WarningWriterOptions{Deduplicate: true}))
	return Run(ctx, streams, os.Args[1:])
}

// Run runs one command line, and returns the exit code.
func Run(ctx context.Context, streams genericiooptions.IOStreams, args []string) int {
	cmd := NewCommand(streams)
	cmd.SetArgs(args)
	if err := cmd.ExecuteContext(ctx); err != nil {
		_, _ = fmt.Fprintln(streams.ErrOut, message(err))
		if a, ok := errors.AsType[*advised](err); ok {
			_, _ = fmt.Fprintln(streams.ErrOut, terminal.Text(a.advice))
		}
		return 1
	}
	return 0
}

// message returns what kubectl writes about an error, escaped. What a server says is one line.
func message(err error) string {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || !strings.HasSuffix(err.Error(), status.Status().Message) {
		return "error: " + terminal.Lines(err.Error())
	}
	if apierrors.IsUnauthorized(err) {
		return "error: You must be logged in to the server (" + terminal.Text(err.Error()) + ")"
	}
	return fmt.Sprintf("Error from server (%s): %s", apierrors.ReasonForError(err), terminal.Text(err.Error()))
}

// plugin is what all commands share.
type plugin struct {
	genericiooptions.IOStreams
	kubeconfig *genericclioptions.ConfigFlags
	options    client.Options
	scope
	format
	forObject string
}

// NewCommand returns the command kubectl eventd.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	p := &plugin{
		IOStreams: streams,
		// The limits of kubectl, for discovery.
		kubeconfig: genericclioptions.NewConfigFlags(true).WithDiscoveryBurst(300).WithDiscoveryQPS(50),
		options:    client.DefaultOptions(),
	}
	cmd := &cobra.Command{
		Use:   "kubectl-eventd",
		Short: "Show what eventd does, and what became of Events",
		Long: `Show what eventd does, what happened to an object, and what became of its Events.

It finds eventd by its Leases, forwards to the leader's Pod as kubectl port-forward does, verifies its
certificate, and uses your own credentials; or, with --connect=apiserver, asks the apiserver. You see the Events of the namespaces in which you may list them.`,
		Annotations: map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl eventd"},
		Version:     stampedVersion(),
		// An error is one line, without the usage.
		SilenceUsage:      true,
		SilenceErrors:     true,
		PersistentPreRunE: func(*cobra.Command, []string) error { return p.validate() },
	}
	cmd.SetIn(streams.In)
	cmd.SetOut(streams.Out)
	cmd.SetErr(streams.ErrOut)
	cmd.CompletionOptions.DisableDefaultCmd = true // kubectl's completes plugins
	p.kubeconfig.AddFlags(cmd.PersistentFlags())
	p.options.AddFlags(cmd.PersistentFlags())
	p.scope.addFlags(cmd.PersistentFlags())
	p.format.addFlags(cmd.PersistentFlags())
	p.completeFlags(cmd)
	cmd.AddCommand(p.newStatus(), p.newTop(), p.newWhy(), p.newTimeline(), p.newDrops(), p.newTail(), p.newPage())
	return cmd
}

// stampedVersion returns the version that the linker has set, as for eventd.
func stampedVersion() string {
	if v := version.Get().GitVersion; !strings.Contains(v, "$Format") {
		return v
	}
	return "devel"
}

// connect returns a client with the caller's kubeconfig. The caller closes it.
func (p *plugin) connect() (*client.Pair, error) {
	config, err := p.kubeconfig.ToRESTConfig()
	if err != nil {
		return nil, err
	}
	return client.NewPair(config, p.options)
}

// get reads a resource into an object, and prints it if the format is that of the API. check may refuse it before.
func (p *plugin) get(ctx context.Context, resource string, query url.Values, into any, check func() error) (printed bool, err error) {
	c, err := p.connect()
	if err != nil {
		return false, err
	}
	defer c.Close()
	var raw json.RawMessage
	if err := c.Get(ctx, resource, query, &raw); err != nil {
		return false, p.explain(err, resource, query)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return false, err
	}
	if err := check(); err != nil || !p.structured() {
		return false, err
	}
	return true, p.format.object(p.Out, raw)
}

// scope is the namespaces of a query.
type scope struct{ all bool }

func (s *scope) addFlags(fs *pflag.FlagSet) {
	fs.BoolVarP(&s.all, "all-namespaces", "A", false, "If present, list the requested object(s) across all namespaces. It needs the right to list Events in all of them.")
}

// inNamespace limits a query to the namespace of the command line or the kubeconfig, and returns its name, which is
// "" for all.
func (p *plugin) inNamespace(query url.Values) (string, error) {
	if p.all {
		return "", nil
	}
	namespace, _, err := p.kubeconfig.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return "", err
	}
	query.Set(v1alpha1.ParamNamespace, namespace)
	return namespace, nil
}

// waiting says on stderr why a watch is not open yet.
func (p *plugin) waiting(err error) { p.note("Waiting for a leader: %v", err) }

// nothing says on stderr that there is nothing to show, as kubectl get does.
func (p *plugin) nothing(what, namespace string) {
	if namespace != "" {
		what += " in " + namespace + " namespace"
	}
	_, _ = fmt.Fprintf(p.ErrOut, "No %s.\n", terminal.Text(what))
}
