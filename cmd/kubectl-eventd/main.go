// Command kubectl-eventd is the plugin "kubectl eventd"; package cmd/kubectl-eventd/app has its commands.
package main

import (
	"os"

	"github.com/eventd/eventd/cmd/kubectl-eventd/app"
)

func main() {
	os.Exit(app.Main())
}
