package app

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

const (
	tailResource  = "tail"
	includeEvents = "events"
	includeSteps  = "steps"
)

type tailOptions struct {
	*plugin
	filters
	match, resourceVersion string
	include                []string
	subject                object // empty is any
	said                   string // what is missing, as it was said last, without what is changing
}

// changing is what differs between errors with one reason: ages and ports.
var changing = regexp.MustCompile(`\d\w*`)

func (p *plugin) newTail() *cobra.Command {
	o := &tailOptions{plugin: p}
	cmd := &cobra.Command{
		Use:   "tail [KIND/NAME]",
		Short: "Show Events as they come",
		Long: `Show Events as eventd observes them, and with --include=steps what it does with what is reported. It goes on
after a disconnect or a change of leader from where it was, and says on stderr if something was lost. Steps in
between are always missing.

-o json prints one item a line, with the resourceVersion from which --resource-version continues.`,
		Example: `  kubectl eventd tail -A --types Warning
  kubectl eventd tail pod/web-0 --include events,steps
  kubectl eventd tail --match 'event.count > 100' -o json | jq .event.message`,
		ValidArgsFunction: p.completeObject,
		RunE:              o.run,
	}
	o.filters.addFlags(cmd)
	p.addFor(cmd)
	cmd.Flags().StringVar(&o.match, "match", "", "Only Events and steps for which this expression (CEL, as in eventd's rules) is true. A step is evaluated as the Event of its series.")
	cmd.Flags().StringSliceVar(&o.include, "include", []string{includeEvents}, "What to show: events, steps or both.")
	cmd.Flags().StringVar(&o.resourceVersion, "resource-version", "", "Show what comes after it, instead of what is new.")
	complete(cmd, "include", includeEvents, includeSteps, includeEvents+","+includeSteps)
	return cmd
}

func (o *tailOptions) run(cmd *cobra.Command, args []string) error {
	args, err := o.named(args)
	if err != nil {
		return err
	}
	if err := o.filters.validate(); err != nil {
		return err
	}
	query := url.Values{}
	if len(args) > 0 {
		subject, err := o.target(cmd, args, query)
		if err != nil {
			return err
		}
		o.subject = subject.object
		query = namespaces(query)
	} else if _, err := o.inNamespace(query); err != nil {
		return err
	}
	c, err := o.connect()
	if err != nil {
		return err
	}
	defer c.Close()
	return o.follow(cmd.Context(), c, query, nil)
}

// follow prints Events that are known, and then what comes.
func (o *tailOptions) follow(ctx context.Context, c *client.Pair, query url.Values, known []v1alpha1.TimelineItem) error {
	query.Set(v1alpha1.ParamInclude, strings.Join(o.include, ","))
	setUnlessEmpty(query, v1alpha1.ParamMatch, o.expression())
	setUnlessEmpty(query, v1alpha1.ParamResourceVersion, o.resourceVersion)
	handle := o.handler()
	for i := range known {
		raw, err := json.Marshal(v1alpha1.TailItem{
			TypeMeta:        metav1.TypeMeta{Kind: "TailItem", APIVersion: v1alpha1.GroupVersion.String()},
			ResourceVersion: o.resourceVersion, Event: &known[i],
		})
		if err != nil {
			return err
		}
		if err := handle(metav1.WatchEvent{Type: string(watch.Added), Object: runtime.RawExtension{Raw: raw}}); err != nil {
			return err
		}
	}
	err := c.Follow(ctx, client.Follow{
		Resource: tailResource, Query: query,
		Handle:       handle,
		Waiting:      o.waiting,
		Disconnected: func(err error) { o.note("Warning: reconnecting: %v", err) },
		Lost:         o.lost,
	})
	return o.explain(err, tailResource, query)
}

// namespaces returns those of a query alone: a tail has no other parameter for what it is about.
func namespaces(query url.Values) url.Values {
	return url.Values{v1alpha1.ParamNamespace: query[v1alpha1.ParamNamespace]}
}

// expression returns what Events and steps must match: the flags, and the expression of the command line.
func (o *tailOptions) expression() string {
	var parts []string
	equal := func(field, value string) {
		if value != "" {
			parts = append(parts, "event."+field+" == "+strconv.Quote(value))
		}
	}
	switch group := o.subject.group; group {
	case "":
	case v1alpha1.GroupCore:
		parts = append(parts, `!event.involvedObject.apiVersion.contains("/")`)
	default: // an Event need not say it
		parts = append(parts, `(event.involvedObject.apiVersion == "" || event.involvedObject.apiVersion.startsWith(`+strconv.Quote(group+"/")+`))`)
	}
	equal("involvedObject.kind", o.subject.kind)
	equal("involvedObject.name", o.subject.name)
	equal("reason", o.reason)
	if len(o.types) > 0 {
		parts = append(parts, fmt.Sprintf(`event.type in ["%s"]`, strings.Join(o.types, `", "`)))
	}
	equal("reportingComponent", o.reporter)
	if o.match != "" {
		parts = append(parts, "("+o.match+")")
	}
	return strings.Join(parts, " && ")
}

func (o *tailOptions) lost() {
	if slices.Contains(o.include, includeEvents) {
		o.note("Warning: Events were lost: eventd no longer has what came after the last one")
	} else {
		o.note("Warning: the steps of the time without a connection are missing")
	}
}

var tailColumns = []string{namespaceColumn, "AGE", "TYPE", "REASON", "OBJECT", "COUNT", "MESSAGE", "REPORTER", "VERSION"}

const narrowTailColumns = 7

// tailWidths are those of what most Events have. Without them, columns would move with each row that is wider than all
// before it, as those of kubectl get --watch do.
var tailWidths = []int{16, 8, 10, 22, 36, 8, 83, 23}

// handler returns what prints the items. A table keeps its widths from one to the next.
func (o *tailOptions) handler() func(metav1.WatchEvent) error {
	var table *terminal.Table
	var row func(...string)
	var printed repetitions
	return func(frame metav1.WatchEvent) error {
		var item v1alpha1.TailItem
		if err := json.Unmarshal(frame.Object.Raw, &item); err != nil {
			return fmt.Errorf("reading an item: %w", err)
		}
		if item.Lost > 0 {
			o.note("Warning: %s lost: this client was too slow", counted(item.Lost, "step"))
		}
		if reason := changing.ReplaceAllString(item.Missing, ""); reason != "" && reason != o.said {
			o.said = reason
			o.note("Missing: %s", item.Missing)
		}
		if frame.Type == string(watch.Bookmark) || printed.has(&item) {
			return nil
		}
		if o.structured() {
			return o.line(o.Out, frame.Object.Raw)
		}
		if table == nil {
			table, row = o.table(o.Out, narrowTailColumns, tailColumns...)
			widths := tailWidths
			if !o.all {
				widths = widths[1:]
			}
			table.Widen(widths...)
		}
		if e := item.Event; e != nil {
			cells := eventCells(e)
			row(e.Namespace, cells[1], e.Type, e.Reason, e.Regarding.String(), cells[5], cells[6], e.Reporter, e.ResourceVersion)
		}
		if s := item.Step; s != nil {
			cells := stepCells(s)
			row(s.Namespace, cells[1], s.Type, s.Reason, s.Regarding.String(), cells[3], "["+inWords(s)+"] "+cells[7], s.Reporter, "")
		}
		return table.Flush()
	}
}

// repetitions are the Events since the cursor has moved: several have the same one, so that a tail that continues
// from it gets them again.
type repetitions struct {
	cursor string
	ids    map[string]bool
}

// maxRepetitions is above the number of Events that eventd sends with one cursor.
const maxRepetitions = 10_000

// has reports whether an Event was there before, and remembers it.
func (r *repetitions) has(item *v1alpha1.TailItem) bool {
	if item.Event == nil {
		return false
	}
	if r.ids == nil || item.ResourceVersion != r.cursor || len(r.ids) >= maxRepetitions {
		r.cursor, r.ids = item.ResourceVersion, map[string]bool{}
	}
	before := r.ids[item.Event.ID]
	r.ids[item.Event.ID] = true
	return before
}
