package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/eventd/eventd/cmd/kubectl-eventd/terminal"
)

const (
	formatJSON = "json"
	formatYAML = "yaml"
	formatWide = "wide"
)

var formats = []string{formatJSON, formatYAML, formatWide}

// format is how a command prints.
type format struct {
	output    string
	noHeaders bool
}

func (f *format) addFlags(fs *pflag.FlagSet) {
	fs.StringVarP(&f.output, "output", "o", "", "Output format. One of: (json, yaml, wide).")
	fs.BoolVar(&f.noHeaders, "no-headers", false, "When using the default output format, don't print headers.")
}

func (f *format) validate() error {
	if f.output != "" && !slices.Contains(formats, f.output) {
		return genericclioptions.NoCompatiblePrinterError{OutputFormat: &f.output, AllowedFormats: slices.Clone(formats)} // sorts them
	}
	return nil
}

// wide reports whether all columns are to be printed.
func (f *format) wide() bool { return f.output == formatWide }

// structured reports whether objects of the API are to be printed.
func (f *format) structured() bool { return f.output == formatJSON || f.output == formatYAML }

// namespaceColumn is the first of tables that have it, and shown with --all-namespaces.
const namespaceColumn = "NAMESPACE"

// table returns a table with the columns of a header. Those after the first narrow ones are for -o wide.
func (p *plugin) table(out io.Writer, narrow int, header ...string) (table *terminal.Table, row func(cells ...string)) {
	first, end := 0, len(header)
	if header[0] == namespaceColumn && !p.all {
		first = 1
	}
	if !p.wide() {
		end = narrow
	}
	shown := header[first:end]
	if p.noHeaders {
		shown = nil
	}
	table = terminal.NewTable(out, shown...)
	return table, func(cells ...string) { table.Row(cells[first:end]...) }
}

// object prints an object as eventd has sent it.
func (f *format) object(out io.Writer, raw []byte) error {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON(raw); err != nil {
		return err
	}
	if f.output == formatYAML {
		// YAML has escapes only in some styles, so those of strings are a part of their text.
		text, err := yaml.Marshal(escaped(object.Object))
		if err != nil {
			return err
		}
		_, err = out.Write(text)
		return err
	}
	var b bytes.Buffer
	if err := (&printers.JSONPrinter{}).PrintObj(object, &b); err != nil {
		return err
	}
	_, err := io.WriteString(out, terminal.JSON(b.String()))
	return err
}

// escaped returns a value of JSON in which all strings are as terminal.Lines returns them.
func escaped(value any) any {
	switch v := value.(type) {
	case string:
		return terminal.Lines(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = escaped(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for key := range v {
			out[terminal.Lines(key)] = escaped(v[key])
		}
		return out
	}
	return value
}

// line prints an object of a stream: JSON in one line, for pipes, or a document of YAML.
func (f *format) line(out io.Writer, raw []byte) error {
	if f.output == formatYAML {
		if _, err := io.WriteString(out, "---\n"); err != nil {
			return err
		}
		return f.object(out, raw)
	}
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out, terminal.JSON(b.String()))
	return err
}
