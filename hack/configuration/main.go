// Command configuration prints docs/configuration.md: every flag of eventd, in
// the groups of --help.
//
//	go run ./hack/configuration >docs/configuration.md
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/eventd/eventd/cmd/eventd/app"
)

const preface = `# Configuration

For operators: all flags of eventd, in the groups of ` + "`eventd --help`" + `, with their defaults. The page is generated from the flags: ` + "`go run ./hack/configuration >docs/configuration.md`" + `.

There is no configuration file. Only tokens, certificates and CAs are reloaded. A wrong flag is reported in one line on stderr with exit code 1, before anything starts. [deployment.md](deployment.md) shows how to change flags, [sizing.md](sizing.md) the memory that they allow.

Rates are numbers per second, fractions such as ` + "`1/300`" + `, or ` + "`unlimited`" + `; 0 never means unlimited. Memory is a quantity such as ` + "`192Mi`" + `.
`

func main() {
	out := bufio.NewWriter(os.Stdout)
	write(out, app.NewOptions())
	if err := out.Flush(); err != nil {
		fmt.Fprintln(os.Stderr, "configuration:", err)
		os.Exit(1)
	}
}

func write(w io.Writer, o *app.Options) {
	_, _ = io.WriteString(w, preface)
	sets := o.Flags()
	for _, group := range sets.Order {
		_, _ = fmt.Fprintf(w, "\n## %s%s\n\n", strings.ToUpper(group[:1]), group[1:])
		if ofKubernetes[group] {
			_, _ = io.WriteString(w, "As in other kube components.\n\n")
		}
		sets.FlagSets[group].VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			_, _ = io.WriteString(w, "- "+name(f))
			if value := defaultOf(f); value != "" {
				_, _ = io.WriteString(w, " ("+code(value)+")")
			}
			if !ofKubernetes[group] {
				_, _ = io.WriteString(w, ": "+text(f.Usage))
			}
			_, _ = io.WriteString(w, "\n")
		})
	}
}

// ofKubernetes are the groups of flags that the documentation of kube components
// describes.
var ofKubernetes = map[string]bool{"secure serving": true, "authentication": true, "authorization": true, "logs": true, "global": true}

// name is how the flag is written, with what kind of value it takes.
func name(f *pflag.Flag) string {
	s := "--" + f.Name
	if f.Shorthand != "" {
		s = "-" + f.Shorthand + ", " + s
	}
	if kind, _ := pflag.UnquoteUsage(f); kind != "" {
		s += " " + kind
	}
	return code(s)
}

// defaultOf is empty where there is none.
func defaultOf(f *pflag.Flag) string {
	if f.DefValue == "[]" {
		return ""
	}
	return f.DefValue
}

func code(s string) string {
	if s == "" {
		return ""
	}
	return "`" + s + "`"
}

// text is what a flag says about itself, on one line.
func text(s string) string {
	return strings.NewReplacer("<", "&lt;", "*", `\*`).Replace(strings.Join(strings.Fields(s), " "))
}
