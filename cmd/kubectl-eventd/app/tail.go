package app

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	tailResource = "tail"
	includeSteps = "steps"
)

type tailOptions struct {
	*plugin
	scope
	filters
	format
	match, resourceVersion string
	include                []string
}

func (p *plugin) newTail() *cobra.Command {
	o := &tailOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "tail [KIND/NAME]",
		Short: "Show Events as they come",
		Long: `Show Events as eventd observes them, and with --include=steps what it does with what is reported. It goes on
after a disconnect or a change of leader from where it was, and says on stderr if something was lost. Steps in
between are always missing.

-o json prints one item a line, with the resourceVersion from which --resource-version continues.`,
		Example: `  kubectl eventd tail -A --type Warning
  kubectl eventd tail pod/web-0 --include events,steps
  kubectl eventd tail --match 'event.count > 100' -o json | jq .event.message`,
		Args:              cobra.MaximumNArgs(2),
		ValidArgsFunction: p.completeObject,
		RunE:              o.run,
	}
	o.scope.addFlags(cmd)
	o.filters.addFlags(cmd)
	o.format.addFlags(cmd)
	cmd.Flags().StringVar(&o.match, "match", "", "Only Events for which this expression (CEL, as in eventd's rules) is true.")
	cmd.Flags().StringSliceVar(&o.include, "include", []string{"events"}, "What to show: events, steps or both.")
	cmd.Flags().StringVar(&o.resourceVersion, "resource-version", "", "Show what comes after it, instead of what is new.")
	complete(cmd, "include", "events", includeSteps, "events,"+includeSteps)
	return cmd
}

func (o *tailOptions) run(cmd *cobra.Command, args []string) error {
	if err := o.validate(); err != nil {
		return err
	}
	query := url.Values{v1alpha1.ParamInclude: {strings.Join(o.include, ",")}}
	o.filters.set(query)
	setUnlessEmpty(query, v1alpha1.ParamMatch, o.match)
	setUnlessEmpty(query, v1alpha1.ParamResourceVersion, o.resourceVersion)
	var err error
	if len(args) > 0 {
		_, err = o.target(cmd, &o.scope, args, query)
	} else {
		_, err = o.scope.set(o.plugin, query)
	}
	if err != nil {
		return err
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	err = c.Follow(cmd.Context(), client.Follow{
		Resource: tailResource, Query: query,
		Handle:       o.handler(),
		Disconnected: func(err error) { o.note("Warning: reconnecting: %v", err) },
		Lost:         func() { o.note("Warning: Events were lost: eventd no longer has what came after the last one") },
	})
	return notServed(err, tailResource, "--history-bytes")
}

var tailColumns = []string{"AGE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE", "NAMESPACE", "REPORTER", "VERSION"}

const narrowTailColumns = 6

// handler returns what prints the items. A table keeps its widths from one to the next.
func (o *tailOptions) handler() func(metav1.WatchEvent) error {
	var table *terminal.Table
	var row func(...string)
	return func(frame metav1.WatchEvent) error {
		var item v1alpha1.TailItem
		if err := json.Unmarshal(frame.Object.Raw, &item); err != nil {
			return fmt.Errorf("reading an item: %w", err)
		}
		if item.Lost > 0 {
			o.note("Warning: %d steps were lost: this client was too slow for them", item.Lost)
		}
		if frame.Type == string(watch.Bookmark) {
			return nil
		}
		if o.structured() {
			return o.line(o.Out, frame.Object.Raw)
		}
		if table == nil {
			table, row = o.table(o.Out, narrowTailColumns, tailColumns...)
		}
		if e := item.Event; e != nil {
			cells := eventCells(e)
			row(cells[0], e.Type, e.Reason, reference(e.Regarding), cells[4], e.Message, e.Namespace, e.Reporter, e.ResourceVersion)
		}
		if s := item.Step; s != nil {
			cells := stepCells(s)
			row(cells[0], s.Type, s.Reason, reference(s.Regarding), cells[2], "["+describe(s)+"] "+s.Message, s.Namespace, s.Reporter, "")
		}
		return table.Flush()
	}
}
