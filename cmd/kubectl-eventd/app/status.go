package app

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/eventd/eventd/cmd/kubectl-eventd/describe"
	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

func (p *plugin) newStatus() *cobra.Command {
	v := &view{plugin: p, resource: "status"}
	v.render = v.renderStatus
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show what eventd does now",
		Long: `Show who leads, the replicas, and each station with its queue and its figures, which are those of /metrics.
On a terminal it is drawn again whenever it changes. It needs the right to list Events in all namespaces.`,
		Example: `  kubectl eventd status
  kubectl eventd status --once -o wide`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return v.show(cmd.Context(), url.Values{})
		},
	}
	v.addFlags(cmd)
	return cmd
}

func (v *view) renderStatus(raw []byte, out io.Writer) error {
	var s v1alpha1.PipelineStatus
	if err := json.Unmarshal(raw, &s); err != nil {
		return err
	}
	v.printSummary(out, &s)
	for _, print := range []func(io.Writer, *v1alpha1.PipelineStatus) error{v.printStations, v.printReceivers, v.printRules, v.printFigures} {
		if err := print(out, &s); err != nil {
			return err
		}
	}
	return nil
}

// printSummary prints what is no table, as kubectl describe does.
func (v *view) printSummary(out io.Writer, s *v1alpha1.PipelineStatus) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(out, "%-15s%s\n", name+":", terminal.Text(fmt.Sprintf(format, args...)))
	}
	if s.Missing != "" {
		line("Missing", "%s", s.Missing)
	}
	for _, p := range describe.Processes(s) {
		if role := p.Flags["role"]; role != "" {
			line("Role", "%s", role)
		}
		if l := p.Leader; l != nil {
			line("Leader", "%s, since %s, %s", l.Identity, age(l.Since.Time), counted(int64(l.Handovers), "handover"))
		} else {
			line("Leader", "none")
		}
		line("Replica", "%s", replica(&p.Replica))
		for i := range p.Followers {
			line("Follower", "%s", replica(&p.Followers[i]))
		}
		if c := p.Configuration; c != nil {
			refused := ""
			if c.Error != "" {
				refused = "; the changed file is refused, this one stays in force: " + c.Error
			}
			line("Configuration", "%s, loaded %s ago%s", c.Hash, ageOf(c.LoadedAt), refused)
		}
		if v.wide() {
			for _, name := range slices.Sorted(maps.Keys(p.Flags)) {
				line("Flag", "--%s=%s", name, p.Flags[name])
			}
		}
	}
	if h := s.History; h != nil {
		connected := "connected"
		if !h.Connected {
			connected = "not connected"
		}
		since := "<unknown>"
		if h.KnownSince != nil {
			since = age(h.KnownSince.Time)
		}
		line("History", "%s of the last %s in %s of %s, %s", counted(h.Versions, "version"), since, size(float64(h.Bytes)), size(float64(h.MaxBytes)), connected)
	}
}

// size formats bytes with their unit, as the page does.
func size(v float64) string {
	if v < 1024 {
		return number(v) + " B"
	}
	i := -1
	const units = "KMGTPE"
	for ; v >= 1024 && i < len(units)-1; i++ {
		v /= 1024
	}
	return fmt.Sprintf("%.1f %ciB", v, units[i])
}

// amount is how much a queue has, or may have.
func amount(f *v1alpha1.Figure) string {
	if strings.Contains(f.Metric, "bytes") {
		return size(f.Value)
	}
	return number(f.Value)
}

func replica(r *v1alpha1.Replica) string {
	parts := []string{r.Identity, r.Role}
	if r.Version != "" {
		parts = append(parts, r.Version)
	}
	if r.Started != nil {
		parts = append(parts, "started "+ageOf(r.Started)+" ago")
	}
	if r.Ready != nil && !*r.Ready {
		parts = append(parts, "not ready"+because(r.Reason))
	}
	if r.UnknownSince != nil {
		parts = append(parts, "silent for "+ageOf(r.UnknownSince))
	}
	if r.Follows != nil && !*r.Follows {
		parts = append(parts, "does not hold what is pending")
	}
	return strings.Join(parts, ", ")
}

func (v *view) printStations(out io.Writer, s *v1alpha1.PipelineStatus) error {
	_, _ = fmt.Fprintln(out)
	table, row := v.table(out, 6, "STATION", "HEALTHY", "QUEUE", "CAPACITY", "OLDEST", "MESSAGE")
	for _, station := range describe.Stations(s) {
		var queue, capacity, oldest string
		if q := station.Queue; q != nil {
			queue = amount(&q.Length)
			if q.Capacity != nil {
				capacity = amount(q.Capacity)
			}
			if q.OldestSeconds != nil {
				oldest = seconds(q.OldestSeconds.Value)
			}
		}
		healthy := strconv.FormatBool(station.Healthy)
		if v.stale || station.Healthy && describe.Leaderless(describe.Processes(s)[0]) && describe.OfLeader(station.Name) {
			healthy = "<unknown>"
		}
		row(station.Name, healthy, queue, capacity, oldest, station.Message)
	}
	return table.Flush()
}

func (v *view) printReceivers(out io.Writer, s *v1alpha1.PipelineStatus) error {
	if len(s.Receivers) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(out)
	table, row := v.table(out, 5, "RECEIVER", "STATE", "LAG", "PENDING", "LAST ERROR", "CURSOR")
	for i := range s.Receivers {
		r := &s.Receivers[i]
		failed := r.LastError
		if r.FailedAt != nil { // it stays after a success
			failed = ageOf(r.FailedAt) + " ago: " + failed
		}
		row(r.Name, r.State, seconds(r.LagSeconds.Value), number(r.Pending.Value), failed, r.Cursor)
	}
	return table.Flush()
}

func (v *view) printRules(out io.Writer, s *v1alpha1.PipelineStatus) error {
	if len(s.Rules) == 0 {
		return nil
	}
	_, _ = fmt.Fprintln(out)
	table, row := v.table(out, 6, "KIND", "RULE", "DOES", "MATCHED", "PER SECOND", "FAILURES", "MATCH")
	for i := range s.Rules {
		r := &s.Rules[i]
		does := r.Does
		if len(r.Receivers) > 0 {
			does += " to " + strings.Join(r.Receivers, ",")
		}
		failed := 0.
		for _, f := range r.Failed {
			failed += f.Value
		}
		row(r.Kind, r.Name, does, number(r.Matched.Value), perSecond(&r.Matched), number(failed), r.Match)
	}
	return table.Flush()
}

// perSecond returns the rate of a counter, if it is known.
func perSecond(f *v1alpha1.Figure) string {
	if f.PerSecond == nil {
		return ""
	}
	return strconv.FormatFloat(*f.PerSecond, 'f', 1, 64)
}

// printFigures prints those that are not 0, or with -o wide all.
func (v *view) printFigures(out io.Writer, s *v1alpha1.PipelineStatus) error {
	_, _ = fmt.Fprintln(out)
	table, row := v.table(out, 4, "STATION", "FIGURE", "VALUE", "PER SECOND")
	figures := func(station string, all []v1alpha1.Figure) {
		for i := range all {
			f := &all[i]
			if f.Value == 0 && !v.wide() {
				continue
			}
			row(station, metric(f), number(f.Value), perSecond(f))
		}
	}
	for i := range s.Stations {
		figures(s.Stations[i].Name, s.Stations[i].Figures)
	}
	figures("apiserver", s.Apiserver.Figures)
	for i := range s.Receivers {
		figures(s.Receivers[i].Name, s.Receivers[i].Settled)
	}
	return table.Flush()
}

// metric returns the name of a figure as /metrics has it.
func metric(f *v1alpha1.Figure) string {
	if len(f.Labels) == 0 {
		return f.Metric
	}
	var labels []string
	for _, name := range slices.Sorted(maps.Keys(f.Labels)) {
		labels = append(labels, name+"="+strconv.Quote(f.Labels[name]))
	}
	return f.Metric + "{" + strings.Join(labels, ",") + "}"
}

// counted returns a number of things, of which noun is one.
func counted(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func number(v float64) string { return strconv.FormatFloat(v, 'f', -1, 64) }

func seconds(v float64) string { return strconv.FormatFloat(v, 'f', 1, 64) + "s" }
