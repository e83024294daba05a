//go:build linux

// Command cluster runs a Kubernetes cluster of one or more nodes on this machine, for tests and for
// anybody who wants to see eventd among real kubelets. It needs root, and what build.sh collects.
//
//	cluster up      starts it, and ends it with Ctrl-C
//	cluster down    ends the one that "up" runs in the same folder, and removes what a killed one has left
//	cluster node    switches a node off or on, cuts it off, or runs a command in it
//	cluster image   packs files into an image of one layer
//
// There is one PID namespace for all of it, so that the end of one process is the end of the cluster.
// In it are the control plane and a bridge, in a network namespace, and the nodes. Each node has
// its own namespaces, its own cgroup as the root of all cgroups, and an overlay of the machine's
// files as its root, whose upper layer and whose disk are in memory. So nothing outside changes but
// one folder and one cgroup in each hierarchy.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

// cluster is what all processes of a cluster know of it.
type cluster struct {
	// Dir has the files of this run, Parts what build.sh has collected.
	Dir, Parts string
	// Nodes is how many there are. They are numbered from 1.
	Nodes int
	// Disk is the size of each node's disk, and Memory how many KiB of memory each kubelet sees.
	Disk, Memory string
	// Images are archives of further images, beside those of Parts.
	Images []string
	// UntilEOF ends the cluster when its standard input ends.
	UntilEOF bool
	// Run is a command for when the cluster is ready.
	Run string
}

// The stages are processes that "up" starts: one that has the control plane and the network, and one or two for each node.
const (
	networkStage  = "stage-network"
	cgroupStage   = "stage-cgroup"
	nodeInitStage = "stage-node"
)

func main() {
	if err := run(os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return errors.New("the first argument is up, down, node or image")
	}
	switch command, args := args[0], args[1:]; command {
	case "up":
		return up(args)
	case "down":
		return down(args)
	case "node":
		return commandNode(args)
	case "image":
		return packImage(args)
	case "help", "-h", "-help", "--help":
		fmt.Println("cluster up, down, node or image: -help after one of them lists its flags")
		return nil
	case networkStage, cgroupStage, nodeInitStage:
		var n node
		if err := json.Unmarshal([]byte(args[0]), &n); err != nil {
			return err
		}
		return map[string]func(node) error{networkStage: runNetwork, cgroupStage: enterCgroup, nodeInitStage: runNode}[command](n)
	default:
		return fmt.Errorf("there is no command %q", command)
	}
}

// path returns a file of this run.
func (c cluster) path(elements ...string) string {
	return filepath.Join(append([]string{c.Dir}, elements...)...)
}

// part returns a file that build.sh has collected.
func (c cluster) part(elements ...string) string {
	return filepath.Join(append([]string{c.Parts}, elements...)...)
}

// stage returns the arguments of a stage.
func stage(name string, n node) []string {
	data, err := json.Marshal(n)
	if err != nil {
		panic(err) // strings and numbers
	}
	return []string{name, string(data)}
}
