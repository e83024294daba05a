package app

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	timelineResource = "timeline"
	versionsAll      = "all"
)

// filters are the flags that choose Events by their fields.
type filters struct {
	reason, reporter string
	types            []string
}

// eventTypes are those that the API has.
var eventTypes = []string{corev1.EventTypeNormal, corev1.EventTypeWarning}

func (f *filters) addFlags(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.reason, "reason", "", "Only Events with this reason.")
	cmd.Flags().StringSliceVar(&f.types, "types", nil, "Only Events of these types: Normal, Warning.")
	cmd.Flags().StringSliceVar(&f.types, "type", nil, "Another name of --types.")
	cmd.Flags().StringVar(&f.reporter, "reporter", "", "Only Events of this reporting controller.")
	complete(cmd, "types", eventTypes...)
	complete(cmd, "type", eventTypes...)
}

// validate writes types as the API does.
func (f *filters) validate() error {
	for i, given := range f.types {
		known := slices.IndexFunc(eventTypes, func(t string) bool { return strings.EqualFold(t, given) })
		if known < 0 {
			return fmt.Errorf("valid --types are Normal or Warning, not %q", given)
		}
		f.types[i] = eventTypes[known]
	}
	slices.Sort(f.types)
	f.types = slices.Compact(f.types)
	return nil
}

func setUnlessEmpty(query url.Values, name, value string) {
	if value != "" {
		query.Set(name, value)
	}
}

type timelineOptions struct {
	*plugin
	filters
	owned, versions, watch bool
	since, until           string
	limit                  int
}

func (p *plugin) newTimeline() *cobra.Command {
	o := &timelineOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "timeline [KIND/NAME]",
		Short: "Show what happened to an object, in order",
		Long: `Show the Events of an object in the order of the times when they were last seen, also after they have
expired in the apiserver. Without an object, show those of the namespace.

--owned adds those of the objects that it owns, and so on: the ReplicaSets of a Deployment, and their Pods. They
are found by their owner references, with your own rights, so only those that still exist.`,
		Example: `  kubectl eventd timeline pod/web-0
  kubectl eventd timeline deploy/web --owned --since 30m
  kubectl eventd timeline --for pod/web-0 --types Warning --watch
  kubectl eventd timeline -A --types Warning -o json`,
		ValidArgsFunction: p.completeObject,
		RunE:              o.run,
	}
	o.filters.addFlags(cmd)
	p.addFor(cmd)
	cmd.Flags().BoolVarP(&o.watch, "watch", "w", false, "After that, show more Events as they come, like tail.")
	cmd.Flags().BoolVar(&o.owned, "owned", false, "Add the Events of the objects that it owns.")
	cmd.Flags().BoolVar(&o.versions, "all-versions", false, "Show each version of an Event, not only the latest.")
	cmd.Flags().StringVar(&o.since, "since", "", "Only what was last seen since: a duration such as 10m, or a time (RFC 3339).")
	cmd.Flags().StringVar(&o.until, "until", "", "Only what was last seen until: a duration such as 5m, or a time (RFC 3339).")
	cmd.Flags().IntVar(&o.limit, "limit", v1alpha1.DefaultLimit, fmt.Sprintf("The newest so many, at most %d.", v1alpha1.MaxLimit))
	return cmd
}

func (o *timelineOptions) run(cmd *cobra.Command, args []string) error {
	args, err := o.named(args)
	switch {
	case err != nil:
		return err
	case o.owned && len(args) == 0:
		return errors.New("--owned needs an object: KIND/NAME")
	case o.watch && (o.owned || o.until != ""):
		return errors.New("--watch is not possible with --owned or --until")
	}
	if err := o.filters.validate(); err != nil {
		return err
	}
	query := url.Values{v1alpha1.ParamLimit: {strconv.Itoa(o.limit)}}
	setUnlessEmpty(query, v1alpha1.ParamReason, o.reason)
	setUnlessEmpty(query, v1alpha1.ParamReporter, o.reporter)
	if len(o.types) == 1 {
		query.Set(v1alpha1.ParamType, o.types[0])
	}
	setUnlessEmpty(query, v1alpha1.ParamSince, o.since)
	setUnlessEmpty(query, v1alpha1.ParamUntil, o.until)
	if o.versions {
		query.Set(v1alpha1.ParamVersions, versionsAll)
	}
	var subject target
	if len(args) > 0 {
		subject, err = o.target(cmd, args, query)
	} else {
		subject.namespace, err = o.inNamespace(query)
	}
	if err != nil {
		return err
	}
	if o.owned || o.watch || len(o.types) > 1 {
		return o.runMerged(cmd.Context(), subject, query)
	}
	var timeline v1alpha1.Timeline
	if printed, err := o.get(cmd.Context(), timelineResource, query, &timeline, func() error { return o.checkFound(cmd.Context(), &timeline, subject) }); printed || err != nil {
		return err
	}
	return o.print(&timeline, subject)
}

// runMerged merges the timelines of an object and of those that it owns, has more than one type, or goes on with a tail.
func (o *timelineOptions) runMerged(ctx context.Context, subject target, query url.Values) error {
	c, err := o.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	family := []object{subject.object}
	if o.owned {
		if family, err = o.family(ctx, subject); err != nil {
			return err
		}
	}
	var merged v1alpha1.Timeline
	for i, member := range family {
		if member.name != "" {
			member.set(query)
		}
		var one v1alpha1.Timeline
		if err := c.Get(ctx, timelineResource, query, &one); err != nil {
			return o.explain(err, timelineResource, query)
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
	merged.Items = slices.DeleteFunc(merged.Items, func(i v1alpha1.TimelineItem) bool {
		return len(o.types) > 0 && !slices.Contains(o.types, i.Type)
	})
	slices.SortStableFunc(merged.Items, func(a, b v1alpha1.TimelineItem) int {
		return cmp.Or(cmp.Compare(happened(a), happened(b)), cmp.Compare(len(a.ResourceVersion), len(b.ResourceVersion)), cmp.Compare(a.ResourceVersion, b.ResourceVersion))
	})
	// Timelines of two groups both have an Event that does not say its group.
	merged.Items = slices.CompactFunc(merged.Items, func(a, b v1alpha1.TimelineItem) bool { return a.ID == b.ID })
	if left := len(merged.Items) - o.limit; left > 0 {
		merged.Items, merged.Truncated = merged.Items[left:], true
	}
	if o.watch {
		tail := &tailOptions{plugin: o.plugin, filters: o.filters, subject: subject.object, include: []string{includeEvents}, resourceVersion: merged.ResourceVersion}
		return tail.follow(ctx, c, namespaces(query), merged.Items)
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

// happened is when an Event was last seen, but not after it was observed, as in the history. Of one moment, versions decide.
func happened(i v1alpha1.TimelineItem) int64 { return min(i.Last.UnixMicro(), i.Observed.UnixMicro()) }

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
	return o.printEvents(timeline.Items)
}

var eventColumns = []string{namespaceColumn, "LAST SEEN", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE", "FIRST SEEN", "REPORTER", "INSTANCE", "NAME", "VERSION"}

const narrowEventColumns = 7

func (p *plugin) printEvents(items []v1alpha1.TimelineItem) error {
	table, row := p.table(p.Out, narrowEventColumns, eventColumns...)
	for i := range items {
		row(eventCells(&items[i])...)
	}
	return table.Flush()
}

func eventCells(i *v1alpha1.TimelineItem) []string {
	return []string{
		i.Namespace, age(i.Last.Time), i.Type, i.Reason, i.Regarding.String(), strconv.FormatInt(i.Count, 10), describe.Message(i.Regarding, i.Message),
		age(i.First.Time), i.Reporter, i.Instance, i.Name, i.ResourceVersion,
	}
}

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
