package app

import (
	"context"
	"fmt"
	"net/url"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	whyResource   = "why"
	dropsResource = "drops"
)

func (p *plugin) newWhy() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "why KIND/NAME",
		Short: "Show what became of what was reported about an object",
		Long: `Show what eventd has done with the occurrences that clients have reported about an object: recorded,
filtered, merged, aggregated, deferred, written or dropped, and delivered; each with the reason. The leader
remembers this for a while, and not over a change of leader.`,
		Example: `  kubectl eventd why pod/web-0
  kubectl eventd why node/node-1 -o wide`,
		ValidArgsFunction: p.completeObject,
		RunE:              p.runWhy,
	}
	p.addFor(cmd)
	return cmd
}

func (p *plugin) runWhy(cmd *cobra.Command, args []string) error {
	args, err := p.named(args)
	if err != nil {
		return err
	}
	query := url.Values{}
	subject, err := p.target(cmd, args, query)
	if err != nil {
		return err
	}
	var explanation v1alpha1.Explanation
	if printed, err := p.get(cmd.Context(), whyResource, query, &explanation, func() error {
		if len(explanation.Steps)+len(explanation.Events) > 0 {
			return nil
		}
		return p.checkExists(cmd.Context(), subject)
	}); printed || err != nil {
		return err
	}
	return p.printWhy(&explanation, subject)
}

func (p *plugin) printWhy(e *v1alpha1.Explanation, subject target) error {
	if e.Missing != "" {
		p.note("Missing: %s", e.Missing)
	}
	if len(e.Steps) == 0 {
		p.nothing("reports about "+subject.String()+" found", subject.namespace)
		p.note("Does its reporter use eventd? What it writes to the apiserver itself is only in the timeline.")
	} else if err := p.printSteps(e.Steps); err != nil {
		return err
	}
	p.remembers(e.Leader, e.KnownSince)
	if m := e.Observe; m != nil {
		p.remembers("of observe, "+m.Leader+",", m.KnownSince)
	}
	if e.Forgotten {
		p.note("There was more: the oldest steps have left the memory of the leader.")
	}
	if len(e.Events) == 0 {
		return nil
	}
	if len(e.Steps) > 0 {
		_, _ = fmt.Fprintln(p.Out)
	}
	return p.printEvents(e.Events)
}

// remembers says on stderr how far back an answer goes: a handover loses what was before.
func (p *plugin) remembers(leader string, since metav1.MicroTime) {
	if !since.IsZero() {
		p.note("The leader %s remembers the last %s.", leader, age(since.Time))
	}
}

func (p *plugin) newDrops() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "drops",
		Short: "Show what was not written lately, and why",
		Long: `Show the last occurrences that were dropped or filtered, with the reason and the words of the apiserver, and
what rules in dry run would have filtered; newest first.`,
		Example: `  kubectl eventd drops -A`,
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return p.runDrops(cmd.Context(), limit) },
	}
	cmd.Flags().IntVar(&limit, "limit", 50, fmt.Sprintf("The newest so many, at most %d.", v1alpha1.MaxLimit))
	return cmd
}

func (p *plugin) runDrops(ctx context.Context, limit int) error {
	query := url.Values{v1alpha1.ParamLimit: {strconv.Itoa(limit)}}
	namespace, err := p.inNamespace(query)
	if err != nil {
		return err
	}
	var drops v1alpha1.DropList
	if printed, err := p.get(ctx, dropsResource, query, &drops, func() error { return nil }); printed || err != nil {
		return err
	}
	if len(drops.Items) == 0 {
		p.nothing("drops found", namespace)
	} else if err := p.printSteps(drops.Items); err != nil {
		return err
	}
	p.remembers(drops.Leader, drops.KnownSince)
	return nil
}

var stepColumns = []string{namespaceColumn, "AGE", "STEP", "COUNT", "TYPE", "REASON", "OBJECT", "MESSAGE", "EVENT", "REPORTER", "USER"}

const narrowStepColumns = 8

func (p *plugin) printSteps(steps []v1alpha1.Step) error {
	table, row := p.table(p.Out, narrowStepColumns, stepColumns...)
	for i := range steps {
		row(stepCells(&steps[i])...)
	}
	return table.Flush()
}

func stepCells(s *v1alpha1.Step) []string {
	return []string{
		s.Namespace, stepAge(s), inWords(s), strconv.FormatInt(s.Occurrences, 10), s.Type, s.Reason, s.Regarding.String(), describe.Message(s.Regarding, s.Message),
		s.Event, s.Reporter, s.User,
	}
}

// stepAge is that of kubectl for repeated Events, if a step stands for several.
func stepAge(s *v1alpha1.Step) string {
	last := age(s.Time.Time)
	if s.First == nil || age(s.First.Time) == last {
		return last
	}
	return fmt.Sprintf("%s (since %s)", last, age(s.First.Time))
}

// inWords says what a step has done, with the reason as /metrics has it, and the words of others.
func inWords(s *v1alpha1.Step) string {
	d := describe.Step(*s)
	said := d.Text + because(d.Reason) + until(s.Until)
	if d.Detail != "" {
		said += ": " + d.Detail
	}
	return said
}

func because(cause string) string {
	if cause == "" {
		return ""
	}
	return " (" + cause + ")"
}

// until says how long a deferral still lasts. Of one that is over, the next steps say what followed.
func until(t *metav1.MicroTime) string {
	if t == nil || time.Until(t.Time) <= 0 {
		return ""
	}
	return ", for " + duration.HumanDuration(time.Until(t.Time)) + " from now"
}
