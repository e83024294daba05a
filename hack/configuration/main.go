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

All that can be chosen about an eventd, in the groups of ` + "`eventd --help`" + `. This page is made from the flags themselves: ` + "`go run ./hack/configuration >docs/configuration.md`" + `.

There is no configuration file, and nothing is read again while eventd runs but tokens, certificates and CAs, which are followed as they change. A flag that is wrong is one line on stderr and exit code 1, before anything has started. [deployment.md](deployment.md) shows how the flags of the Deployment are changed, and [sizing.md](sizing.md) what the limits take together.

Rates are numbers per second, fractions such as ` + "`1/300`" + `, or ` + "`unlimited`" + `; 0 never means that there is no limit. Amounts of memory are quantities such as ` + "`192Mi`" + `.
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
		_, _ = fmt.Fprintf(w, "\n## %s%s\n\n| flag | default | |\n|---|---|---|\n", strings.ToUpper(group[:1]), group[1:])
		sets.FlagSets[group].VisitAll(func(f *pflag.Flag) {
			if f.Hidden || f.Deprecated != "" {
				return
			}
			_, _ = fmt.Fprintf(w, "| %s | %s | %s |\n", name(f), code(defaultOf(f)), cell(f.Usage))
		})
	}
}

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
	return "`" + strings.ReplaceAll(s, "|", `\|`) + "`"
}

// cell is text on one line of a table.
func cell(s string) string {
	return strings.NewReplacer("|", `\|`, "<", "&lt;", "*", `\*`).Replace(strings.Join(strings.Fields(s), " "))
}
