package app

import (
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
	"github.com/eventd/eventd/pkg/query/v1alpha1"
)

// topKeys are the values of --by.
var topKeys = []string{"object", "reason", "namespace", "reporter"}

func (p *plugin) newTop() *cobra.Command {
	v := &view{plugin: p, resource: "top"}
	v.render = v.renderTop
	var by, since string
	var limit int
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Show what is reported most often",
		Long: `Show the noisiest objects, reasons, namespaces or reporters of the last minutes, with the writes that they have
caused, and those that eventd has saved. On a terminal it is drawn again whenever it changes.`,
		Example: `  kubectl eventd top -A
  kubectl eventd top -A --by reporter --since 2m --once`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			key := strings.TrimSuffix(by, "s") // resources have plurals
			if !slices.Contains(topKeys, key) {
				return fmt.Errorf("--by must be one of %q, not %q", topKeys, by)
			}
			query := url.Values{v1alpha1.ParamBy: {key}, v1alpha1.ParamLimit: {strconv.Itoa(limit)}}
			setUnlessEmpty(query, v1alpha1.ParamSince, since)
			var err error
			if v.namespace, err = v.inNamespace(query); err != nil {
				return err
			}
			return v.show(cmd.Context(), query)
		},
	}
	v.addFlags(cmd)
	cmd.Flags().StringVar(&by, "by", topKeys[0], "What to count: object, reason, namespace or reporter.")
	cmd.Flags().StringVar(&since, "since", "", "The window: a duration such as 5m. By default it is eventd's.")
	cmd.Flags().IntVar(&limit, "limit", 20, "The noisiest so many.")
	complete(cmd, "by", topKeys...)
	return cmd
}

func (v *view) renderTop(raw []byte, out io.Writer) error {
	var top v1alpha1.Top
	if err := json.Unmarshal(raw, &top); err != nil {
		return err
	}
	switch {
	case top.Missing != "" && v.Out == out:
		v.note("Missing: %s", top.Missing)
	case top.Missing != "": // a screen
		_, _ = fmt.Fprintf(out, "Missing: %s\n\n", terminal.Text(top.Missing))
	case top.OnlyReported && v.Out == out:
		v.note("Only what clients report to eventd is counted: with --history-bytes, a process that observes counts what others write to the apiserver too.")
	}
	if len(top.Items) == 0 && v.Out == out {
		if top.Occurrences > 0 {
			v.note("No %s stands out among %s.", top.By, counted(top.Occurrences, "occurrence"))
			return nil
		}
		v.nothing("reports found", v.namespace)
		return nil
	}
	header := []string{strings.ToUpper(top.By), "OCCURRENCES", "MAX ERROR", "WRITES", "SAVED"}
	if top.By == topKeys[0] {
		header = slices.Insert(header, 0, namespaceColumn)
	}
	if out != v.Out { // a screen
		_, _ = fmt.Fprintf(out, "%s in %s\n\n", counted(top.Occurrences, "occurrence"), top.Until.Sub(top.Since.Time).Round(time.Second))
	}
	table, row := v.table(out, len(header), header...)
	for i := range top.Items {
		item := &top.Items[i]
		counts := []string{strconv.FormatInt(item.Occurrences, 10), strconv.FormatInt(item.Error, 10), strconv.FormatInt(item.Writes, 10), strconv.FormatInt(item.Saved, 10)}
		row(append(topKey(&top, item), counts...)...)
	}
	return table.Flush()
}

func topKey(top *v1alpha1.Top, item *v1alpha1.TopItem) []string {
	switch {
	case top.By == topKeys[0] && item.Object != nil:
		return []string{item.Object.Namespace, item.Object.String()}
	case top.By == topKeys[0]:
		return []string{"", ""}
	}
	return []string{item.Reason + item.Namespace + item.Reporter} // one of them is set
}
