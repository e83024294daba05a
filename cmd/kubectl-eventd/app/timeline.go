package app

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	timelineResource = "timeline"
	versionsAll      = "all"
)

// filters are the flags that choose Events by their fields.
type filters struct{ reason, eventType, reporter string }

func (f *filters) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "Only Events with this reason.")
	cmd.Flags().StringVar(&f.eventType, "type", "", "Only Events of this type: Normal or Warning.")
	cmd.Flags().StringVar(&f.reporter, "reporter", "", "Only Events of this reporting controller.")
	complete(cmd, "type", "Normal", "Warning")
}

func (f *filters) set(query url.Values) {
	setUnlessEmpty(query, v1alpha1.ParamReason, f.reason)
	setUnlessEmpty(query, v1alpha1.ParamType, f.eventType)
	setUnlessEmpty(query, v1alpha1.ParamReporter, f.reporter)
}

func setUnlessEmpty(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

type timelineOptions struct {
	*plugin
	scope
	filters
	format
	owned, versions bool
	since, until    string
	limit           int
}

func (p *plugin) newTimeline() *cobra.Command {
	o := &timelineOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "timeline [KIND/NAME]",
		Short: "Show what happened to an object, in order",
		Long: `Show the Events of an object in the order in which eventd has observed them, also after they have
expired in the apiserver. Without an object, show those of the namespace.

--owned adds those of the objects that it owns, and so on: the ReplicaSets of a Deployment, and their Pods. They
are found by their owner references, with your own rights, so only those that still exist.`,
		Example: `  kubectl eventd timeline pod/web-0
  kubectl eventd timeline deploy/web --owned --since 30m
  kubectl eventd timeline -A --type Warning -o json`,
		ValidArgsFunction: p.completeObject,
		RunE:              o.run,
	}
	o.scope.addFlags(cmd)
	o.filters.addFlags(cmd)
	o.format.addFlags(cmd)
	cmd.Flags().BoolVar(&o.owned, "owned", false, "Add the Events of the objects that it owns.")
	cmd.Flags().BoolVar(&o.versions, "all-versions", false, "Show each version of an Event, not only the latest.")
	cmd.Flags().StringVar(&o.since, "since", "", "Only what was observed since: a duration such as 10m, or a time (RFC 3339).")
	cmd.Flags().StringVar(&o.until, "until", "", "Only what was observed until: a duration such as 5m, or a time (RFC 3339).")
	cmd.Flags().IntVar(&o.limit, "limit", v1alpha1.DefaultLimit, fmt.Sprintf("The newest so many, at most %d.", v1alpha1.MaxLimit))
	return cmd
}

func (o *timelineOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	if o.owned && len(args) == 0 {
		return fmt.Errorf("--owned needs an object: KIND/NAME")
	}
	query := url.Values{v1alpha1.ParamLimit: {strconv.Itoa(o.limit)}}
	o.filters.set(query)
	setUnlessEmpty(query, v1alpha1.ParamSince, o.since)
	setUnlessEmpty(query, v1alpha1.ParamUntil, o.until)
	if o.versions {
		query.Set(v1alpha1.ParamVersions, versionsAll)
	}
	var subject target
	var err error
	if len(args) > 0 {
		subject, err = o.target(cmd, &o.scope, args, query)
	} else {
		subject.namespace, err = o.scope.set(o.plugin, query)
	}
	if err != nil {
		return err
	}
	if o.owned {
		return o.runOwned(cmd.Context(), subject, query)
	}
	var timeline v1alpha1.Timeline
	if printed, err := o.get(cmd.Context(), timelineResource, "--history-bytes", query, &o.format, &timeline, func() error { return o.checkFound(cmd.Context(), &timeline, subject) }); printed || err != nil {
		return err
	}
	return o.print(&timeline, subject)
}

// runOwned merges the timelines of an object and of those that it owns.
func (o *timelineOptions) runOwned(ctx context.Context, subject target, query url.Values) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	family, err := o.family(ctx, subject)
	if err != nil {
		return err
	}
	var merged v1alpha1.Timeline
	for i, member := range family {
		member.set(query)
		var one v1alpha1.Timeline
		if err := c.Get(ctx, timelineResource, query, &one); err != nil {
			return o.notServed(err, timelineResource, "--history-bytes")
		}
		if i == 0 {
			merged = one
			continue
		}
		merged.Items = append(merged.Items, one.Items...)
		if merged.KnownSince.Before(&one.KnownSince) {
			merged.KnownSince = one.KnownSince
		}
		merged.Truncated = merged.Truncated || one.Truncated
	}
	slices.SortStableFunc(merged.Items, func(a, b v1alpha1.TimelineItem) int {
		return cmp.Or(a.Observed.Compare(b.Observed.Time), cmp.Compare(a.ID, b.ID))
	})
	if left := len(merged.Items) - o.limit; left > 0 {
		merged.Items, merged.Truncated = merged.Items[left:], true
	}
	if err := o.checkFound(ctx, &merged, subject); err != nil {
		return err
	}
	if o.structured() {
		raw, err := json.Marshal(merged)
		if err != nil {
			return err
		}
		return o.format.object(o.Out, raw)
	}
	return o.print(&merged, subject)
}

// checkFound returns an error if there is nothing to show since the object does not exist.
func (o *timelineOptions) checkFound(ctx context.Context, timeline *v1alpha1.Timeline, subject target) error {
	if len(timeline.Items) > 0 || subject.name == "" {
		return nil
	}
	return o.checkExists(ctx, subject)
}

func (o *timelineOptions) print(timeline *v1alpha1.Timeline, subject target) error {
	if len(timeline.Items) == 0 {
		what := "Events found"
		if subject.name != "" {
			what = "Events of " + subject.String() + " found"
		}
		o.nothing(what, subject.namespace)
		if !timeline.KnownSince.IsZero() {
			o.note("eventd has the last %s.", age(timeline.KnownSince.Time))
		}
		return nil
	}
	if timeline.Truncated {
		o.note("Older Events are left out: see --limit and --since.")
	}
	return printEvents(&o.format, o.Out, timeline.Items)
}

var eventColumns = []string{"LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE", "NAMESPACE", "FIRST SEEN", "REPORTER", "INSTANCE", "NAME", "VERSION"}

const narrowEventColumns = 6

func printEvents(f *format, out io.Writer, items []v1alpha1.TimelineItem) error {
	table, row := f.table(out, narrowEventColumns, eventColumns...)
	for i := range items {
		row(eventCells(&items[i])...)
	}
	return table.Flush()
}

func eventCells(i *v1alpha1.TimelineItem) []string {
	return []string{
		age(i.Last.Time), i.Type, i.Reason, reference(i.Regarding), strconv.FormatInt(i.Count, 10), i.Message,
		i.Namespace, age(i.First.Time), i.Reporter, i.Instance, i.Name, i.ResourceVersion,
	}
}

// reference returns an object as kubectl events does.
func reference(r v1alpha1.ObjectReference) string { return r.Kind + "/" + r.Name }

// age returns how long ago something was.
func age(t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}

func ageOf(t *metav1.Time) string {
	if t == nil {
		return "<unknown>"
	}
	return age(t.Time)
}

// note writes a line to stderr.
func (p *plugin) note(format string, args ...any) {
	_, _ = fmt.Fprintln(p.ErrOut, terminal.Text(fmt.Sprintf(format, args...)))
}
