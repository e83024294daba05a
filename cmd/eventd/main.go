// Command eventd is the daemon; package internal/daemon says what it promises.
package main

import (
	"os"

	"github.com/eventd/eventd/internal/daemon"
)

func main() {
	os.Exit(daemon.Main(os.Stderr))
}
