package app

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/pkg/config/v1alpha1"
	"github.com/eventd/eventd/pkg/rules"
)

// maxEventFile is the maximum size of a file of Events. A list of a large cluster has about 1 KiB
// per Event.
const maxEventFile = 64 << 20

func newTestCommand() *cobra.Command {
	var events, output, role string
	cmd := &cobra.Command{
		Use:   "test FILE --event EVENTFILE",
		Short: "Show what would become of Events, and why",
		Long: `eventd config test evaluates the intake rules, the routes and the metrics of a file for Events, and
shows which match, what the rules do if a client reports the Event, which receivers get it when it is
stored, and what counts it. The first rule that matches decides, unless its action begins with "would":
it is a dry run. EVENTFILE has Events or lists of them, of v1 or events.k8s.io/v1, in YAML or JSON, as
"kubectl get events -o yaml" and "-o json --watch" print them, or lines of a jsonLines receiver.
It is - for stdin.`,
		Args: oneFile,
		RunE: func(cmd *cobra.Command, args []string) error {
			if output != "table" && output != "json" {
				return fmt.Errorf("--output must be table or json, got %q", output)
			}
			if events == "" {
				return fmt.Errorf("--event is required")
			}
			_, set, err := loadRouting(cmd.InOrStdin(), args[0], role)
			if err != nil {
				return err
			}
			data, err := readFile(cmd.InOrStdin(), events, maxEventFile)
			if err != nil {
				return err
			}
			list, err := decodeEvents(data)
			if err != nil {
				return fileError{events, err}
			}
			return explain(cmd.OutOrStdout(), set, list, output == "json")
		},
	}
	cmd.Flags().StringVar(&events, "event", "", "File with an Event or a list of Events; - for stdin.")
	cmd.Flags().StringVarP(&output, "output", "o", "table", "Format of the output: table or json.")
	addRole(cmd, &role)
	return cmd
}

// explanation is what becomes of an Event, as JSON.
type explanation struct {
	Event     string         `json:"event"`
	Intake    []ruleLine     `json:"intake"`
	Routes    []routeLine    `json:"routes"`
	Receivers []receiverLine `json:"receivers"`
	Metrics   []metricLine   `json:"metrics,omitempty"`
}

type ruleLine struct {
	Rule   string       `json:"rule"`
	Action rules.Action `json:"action"`
	Result rules.Result `json:"result"`
	Error  string       `json:"error,omitempty"`
}

type routeLine struct {
	Route  string       `json:"route"`
	Result rules.Result `json:"result"`
	Error  string       `json:"error,omitempty"`
}

type receiverLine struct {
	Receiver string `json:"receiver"`
	Deliver  bool   `json:"deliver"`
	Route    string `json:"route,omitempty"`
	Why      string `json:"why"`
	// Throttle is that of the route.
	Throttle *v1alpha1.Throttle `json:"throttle,omitempty"`
}

func explain(out io.Writer, set *rules.Set, events []*corev1.Event, asJSON bool) error {
	explanations := make([]explanation, len(events))
	for i, event := range events {
		explanations[i] = explainOne(set, event)
		explanations[i].Metrics = explainMetrics(set, event)
	}
	if asJSON {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(explanations)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for i, e := range explanations {
		if i > 0 {
			_, _ = fmt.Fprintln(table)
		}
		e.writeTo(table)
	}
	return table.Flush()
}

func explainOne(set *rules.Set, event *corev1.Event) explanation {
	d, object := set.Route(event), event.InvolvedObject
	e := explanation{
		Event:     fmt.Sprintf("%s/%s (%s %s, %s, %s)", event.Namespace, event.Name, object.Kind, object.Name, event.Type, event.Reason),
		Intake:    []ruleLine{},
		Routes:    []routeLine{},
		Receivers: []receiverLine{},
	}
	for _, r := range set.Intake(reported(event)) {
		e.Intake = append(e.Intake, ruleLine{r.Rule, r.Action, r.Result, textOf(r.Err)})
	}
	for _, r := range d.Routes {
		e.Routes = append(e.Routes, routeLine{r.Route, r.Result, textOf(r.Err)})
	}
	for _, r := range d.Receivers {
		e.Receivers = append(e.Receivers, receiverLine{r.Receiver, r.Deliver, r.Route, why(r, len(d.Routes) == 0), r.Throttle})
	}
	return e
}

// reported returns an Event without what the apiserver has set: the intake does not have it.
func reported(event *corev1.Event) *corev1.Event {
	out := *event
	out.UID, out.CreationTimestamp = "", metav1.Time{}
	return &out
}

func textOf(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func why(d rules.Delivery, withoutRoutes bool) string {
	switch {
	case withoutRoutes:
		return "there are no routes"
	case d.Throttle != nil:
		return fmt.Sprintf("route %s, throttled: %s", d.Route, describeThrottle(d.Throttle))
	case d.Deliver:
		return "route " + d.Route
	case d.Route != "":
		return "route " + d.Route + " ends the evaluation"
	default:
		return "no route to it matches"
	}
}

func (e *explanation) writeTo(table io.Writer) {
	_, _ = fmt.Fprintf(table, "Event %s\n", printable(e.Event))
	if len(e.Intake) > 0 {
		_, _ = fmt.Fprintln(table, "INTAKE RULE\tACTION\tRESULT")
	}
	for _, r := range e.Intake {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", r.Rule, inWords(r.Action), resultLine(r.Result, r.Error))
	}
	if len(e.Routes) > 0 {
		_, _ = fmt.Fprintln(table, "ROUTE\tRESULT")
	}
	for _, r := range e.Routes {
		_, _ = fmt.Fprintf(table, "%s\t%s\n", r.Route, resultLine(r.Result, r.Error))
	}
	if len(e.Receivers) > 0 {
		_, _ = fmt.Fprintln(table, "RECEIVER\tDELIVERED\tWHY")
	}
	for _, r := range e.Receivers {
		_, _ = fmt.Fprintf(table, "%s\t%s\t%s\n", r.Receiver, map[bool]string{true: "yes", false: "no"}[r.Deliver], r.Why)
	}
	e.writeMetrics(table)
}

func resultLine(result rules.Result, err string) string {
	if err == "" {
		return inWords(result)
	}
	return inWords(result) + ": " + printable(oneLine(err))
}

func inWords[T ~string](label T) string { return strings.ReplaceAll(string(label), "_", " ") }

// printable quotes what could control a terminal: an Event has in it what anybody wrote.
func printable(s string) string {
	if strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }) {
		return strconv.Quote(s)
	}
	return s
}
