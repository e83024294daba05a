package app

import (
	"fmt"
	"io"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	whyResource   = "why"
	dropsResource = "drops"
)

type whyOptions struct {
	*plugin
	scope
	format
}

func (p *plugin) newWhy() *cobra.Command {
	o := &whyOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Show what became of what was reported about an object",
		Long: `Show what eventd has done with the occurrences that clients have reported about an object: recorded,
filtered, merged, aggregated, deferred, written or dropped, and delivered; each with the reason. The leader
remembers this for a while, and not over a change of leader.`,
		Example: `  kubectl eventd why pod/web-0
  kubectl eventd why node/node-1 -o wide`,
		Args:              cobra.RangeArgs(1, 2),
		ValidArgsFunction: p.completeObject,
		RunE:              o.run,
	}
	o.scope.addFlags(cmd)
	o.format.addFlags(cmd)
	return cmd
}

func (o *whyOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	query := url.Values{}
	subject, err := o.target(cmd, &o.scope, args, query)
	if err != nil {
		return err
	}
	var explanation v1alpha1.Explanation
	if printed, err := o.get(cmd.Context(), whyResource, "--trail-bytes", query, &o.format, &explanation); printed || err != nil {
		return err
	}
	return o.print(&explanation, subject)
}

func (o *whyOptions) print(e *v1alpha1.Explanation, subject target) error {
	if len(e.Steps) == 0 {
		o.nothing("reports about "+subject.String()+" found", subject.namespace)
		if !e.KnownSince.IsZero() {
			o.note("The leader %s remembers the last %s.", e.Leader, age(e.KnownSince.Time))
		}
	} else if err := printSteps(&o.format, o.Out, e.Steps); err != nil {
		return err
	}
	if e.Forgotten {
		o.note("There was more: the oldest steps have left the memory of the leader.")
	}
	if len(e.Events) == 0 {
		return nil
	}
	if len(e.Steps) > 0 {
		_, _ = fmt.Fprintln(o.Out)
	}
	return printEvents(&o.format, o.Out, e.Events)
}

type dropsOptions struct {
	*plugin
	scope
	format
	limit int
}

func (p *plugin) newDrops() *cobra.Command {
	o := &dropsOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "drops",
		Short: "Show what was not written lately, and why",
		Long: `Show the last occurrences that were dropped or filtered, with the reason and the words of the apiserver, and
what rules in dry run would have filtered; newest first.`,
		Example: `  kubectl eventd drops -A`,
		Args:    cobra.NoArgs,
		RunE:    o.run,
	}
	o.scope.addFlags(cmd)
	o.format.addFlags(cmd)
	cmd.Flags().IntVar(&o.limit, "limit", 50, fmt.Sprintf("The newest so many, at most %d.", v1alpha1.MaxLimit))
	return cmd
}

func (o *dropsOptions) run(cmd *cobra.Command, _ []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	query := url.Values{v1alpha1.ParamLimit: {strconv.Itoa(o.limit)}}
	namespace, err := o.scope.set(o.plugin, query)
	if err != nil {
		return err
	}
	var drops v1alpha1.DropList
	if printed, err := o.get(cmd.Context(), dropsResource, "--trail-bytes", query, &o.format, &drops); printed || err != nil {
		return err
	}
	if len(drops.Items) == 0 {
		o.nothing("drops found", namespace)
		return nil
	}
	return printSteps(&o.format, o.Out, drops.Items)
}

var stepColumns = []string{"AGE", "STEP", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE", "NAMESPACE", "EVENT", "REPORTER", "USER"}

const narrowStepColumns = 7

func printSteps(f *format, out io.Writer, steps []v1alpha1.Step) error {
	table, row := f.table(out, narrowStepColumns, stepColumns...)
	for i := range steps {
		row(stepCells(&steps[i])...)
	}
	return table.Flush()
}

func stepCells(s *v1alpha1.Step) []string {
	return []string{
		stepAge(s), describe(s), strconv.FormatInt(s.Occurrences, 10), s.Type, s.Reason, reference(s.Regarding), s.Message,
		s.Namespace, s.Event, s.Reporter, s.User,
	}
}

// stepAge is that of kubectl for repeated Events, if a step stands for several.
func stepAge(s *v1alpha1.Step) string {
	if s.First == nil || s.First.Equal(&s.Time) {
		return age(s.Time.Time)
	}
	return fmt.Sprintf("%s (since %s)", age(s.Time.Time), age(s.First.Time))
}

// describe says in words what a step has done.
func describe(s *v1alpha1.Step) string {
	var said string
	switch s.Action {
	case v1alpha1.ActionFiltered:
		said = "filtered by rule " + s.Rule
	case v1alpha1.ActionWouldBe:
		said = "would be filtered by rule " + s.Rule + " (dry run)"
		if s.Cause == v1alpha1.CauseWouldBudget {
			said = "would have the budget of rule " + s.Rule + " (dry run)"
		}
	case v1alpha1.ActionMerged:
		said = "merged into its series"
	case v1alpha1.ActionAggregated:
		said = "aggregated into the combined Event"
	case v1alpha1.ActionDeferred:
		said = "deferred" + until(s.Until) + because(s.Cause)
	case v1alpha1.ActionSettled:
		said = s.Outcome + because(s.Cause)
	case v1alpha1.ActionDelivered:
		said = "delivered to " + s.Receiver
	case v1alpha1.ActionUnrouted:
		said = "not delivered to " + s.Receiver
		if s.Rule != "" {
			said += " by rule " + s.Rule
		}
		said += because(s.Cause)
	default: // recorded, and what a newer eventd does
		said = s.Action + because(s.Cause)
	}
	if s.Detail != "" {
		said += ": " + s.Detail
	}
	return strings.TrimSpace(said)
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return " (" + cause + ")"
}

func until(t *metav1.MicroTime) string {
	switch {
	case t == nil:
		return ""
	case time.Until(t.Time) > 0:
		return " for " + duration.HumanDuration(time.Until(t.Time))
	default:
		return " until " + age(t.Time) + " ago"
	}
}
