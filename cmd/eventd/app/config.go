package app

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
)

// newConfigCommand returns the command eventd config. Its subcommands read files, start nothing,
// and need no cluster.
func newConfigCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "Check and try a configuration file",
		Long:  "eventd config checks and tries a file with rules, receivers, routes and metrics. It needs no cluster.",
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) > 0 {
				return fmt.Errorf("unexpected argument %q: eventd config has the commands check and test", args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newCheckCommand(), newTestCommand())
	// The functions of eventd itself would show its flags.
	cmd.SetUsageFunc(func(c *cobra.Command) error {
		_, err := io.WriteString(c.OutOrStderr(), usage(c))
		return err
	})
	cmd.SetHelpFunc(func(c *cobra.Command, _ []string) {
		_, _ = fmt.Fprintf(c.OutOrStdout(), "%s\n\n%s", c.Long, usage(c))
	})
	return cmd
}

// usage shows the own commands and flags of a command.
func usage(c *cobra.Command) string {
	var b strings.Builder
	if !c.HasSubCommands() {
		_, _ = fmt.Fprintf(&b, "Usage:\n  %s\n\nFlags:\n%s", c.UseLine(), c.NonInheritedFlags().FlagUsages())
		return b.String()
	}
	_, _ = fmt.Fprintf(&b, "Usage:\n  %s COMMAND\n\nCommands:\n", c.CommandPath())
	for _, sub := range c.Commands() {
		_, _ = fmt.Fprintf(&b, "  %s %s\n", sub.Name(), sub.Short)
	}
	return b.String()
}

func newCheckCommand() *cobra.Command {
	var role string
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Check a file, and show what it has in it",
		Long:  "eventd config check reports every wrong field of a file on a line of its own, with exit code 1.\nFILE is - for stdin.",
		Args:  oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			config, _, err := loadRouting(cmd.InOrStdin(), args[0], role)
			if err != nil {
				return err
			}
			_, err = io.WriteString(cmd.OutOrStdout(), summary(config))
			return err
		},
	}
	addRole(cmd, &role)
	return cmd
}

func addRole(cmd *cobra.Command, role *string) {
	cmd.Flags().StringVar(role, "role", RoleAll, "The --role of the eventd that is to read the file.")
}

func oneFile(cmd *cobra.Command, args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("%s takes one FILE, got %d arguments", cmd.CommandPath(), len(args))
	}
	return nil
}

// loadRouting loads and compiles a file for a role. Its error may be a fileError.
func loadRouting(stdin io.Reader, name, role string) (*v1alpha1.EventdConfiguration, *rules.Set, error) {
	if err := roleError(role); err != nil {
		return nil, nil, err
	}
	data, err := readFile(stdin, name, v1alpha1.MaxBytes)
	if err != nil {
		return nil, nil, err
	}
	config, err := v1alpha1.Load(data)
	if err != nil {
		return nil, nil, fileError{name, err}
	}
	set, err := rules.Compile(config)
	if err == nil {
		err = checkRole(role, config)
	}
	if err != nil {
		return nil, nil, fileError{name, err}
	}
	return config, set, nil
}

// readFile reads a file, or stdin if the name is "-", of at most limit bytes.
func readFile(stdin io.Reader, name string, limit int64) ([]byte, error) {
	if name == "-" {
		return readAll(stdin, name, limit)
	}
	return readNamed(name, limit)
}

func readNamed(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readAll(file, name, limit)
}

func readAll(from io.Reader, name string, limit int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err != nil {
		return nil, err
	}
	if int64(len(data)) > limit {
		return nil, fmt.Errorf("%s has more than %d bytes", name, limit)
	}
	return data, nil
}

// fileError is what is wrong in a file.
type fileError struct {
	name string
	err  error
}

func (e fileError) Error() string { return e.name + ": " + e.err.Error() }

func (e fileError) Unwrap() error { return e.err }

// lines returns an error as lines: one for each field of a file that is wrong.
func lines(err error) (out []string) {
	var file fileError
	var fields utilerrors.Aggregate
	if !errors.As(err, &file) || !errors.As(file.err, &fields) {
		return []string{oneLine(err.Error())}
	}
	for _, field := range fields.Errors() {
		out = append(out, oneLine(file.name+": "+field.Error()))
	}
	return out
}

// summary shows what a valid configuration has in it.
func summary(config *v1alpha1.EventdConfiguration) string {
	return itemized("Intake rules", config.Intake, describeRule, "none") +
		itemized("Receivers", config.Receivers, describe, "none") +
		itemized("Routes", config.Routes, describeRoute, "none, so every receiver gets every Event") +
		itemized("Metrics", config.Metrics, func(m *v1alpha1.Metric) string { return m.Name }, "none")
}

func itemized[T any](title string, items []T, describe func(*T) string, none string) string {
	described := make([]string, len(items))
	for i := range items {
		described[i] = describe(&items[i])
	}
	if len(described) == 0 {
		described = []string{none}
	}
	return title + ": " + strings.Join(described, ", ") + "\n"
}

func describeRule(r *v1alpha1.IntakeRule) string {
	kind := "drop"
	if r.Budget != nil {
		kind = "budget"
	}
	if r.DryRun {
		kind += ", dry run"
	}
	return fmt.Sprintf("%s (%s)", r.Name, kind)
}

func describeRoute(r *v1alpha1.Route) string {
	if r.Throttle == nil {
		return r.Name
	}
	return fmt.Sprintf("%s (throttled: %s)", r.Name, describeThrottle(r.Throttle))
}

func describe(r *v1alpha1.Receiver) string {
	kind := "jsonLines"
	switch {
	case r.OTLP != nil:
		kind = "otlp"
	case r.CloudEvents != nil:
		kind = "cloudEvents"
	case r.JetStream != nil:
		kind = "jetStream"
	}
	if r.Paused {
		kind += ", paused"
	}
	return fmt.Sprintf("%s (%s)", r.Name, kind)
}
