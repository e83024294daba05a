// Command eventd is the daemon; package cmd/eventd/app documents what it promises.
package main

import (
	"os"

	"github.com/eventd/eventd/cmd/eventd/app"
)

func main() {
	os.Exit(app.Main(os.Stderr))
}
