package app

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/eventd/eventd/cmd/kubectl-eventd/page"
)

func (p *plugin) newPage() *cobra.Command {
	address := ""
	cmd := &cobra.Command{
		Use:   "page",
		Short: "Show what eventd does in a browser",
		Long: `Serve a page on this machine, until Ctrl-C, that shows what eventd does, and what became of an object's Events.
It asks eventd with your own credentials. The address that it prints works once, in one browser.`,
		Example: `  kubectl eventd page
  kubectl eventd page --address 127.0.0.1:8080`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if p.output != "" {
				return errors.New("a page has no output format")
			}
			eventd, err := p.connect()
			if err != nil {
				return err
			}
			defer eventd.Close()
			return page.Serve(cmd.Context(), page.Options{Backend: eventd, Kind: p.kind, Advice: p.advice, Address: address, Out: p.Out})
		},
	}
	cmd.Flags().StringVar(&address, "address", "", "Where to listen, on a loopback address. The default is a free port of 127.0.0.1.")
	return cmd
}
