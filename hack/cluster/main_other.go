//go:build !linux

package main

import (
	"fmt"
	"os"
)

func main() {
	fmt.Fprintln(os.Stderr, "cluster: a cluster of real nodes needs Linux and root; make run shows eventd on this machine")
	os.Exit(1)
}
