// Command node is what a node and the controllers of a cluster run, in one binary, of the control
// plane's version: kubelet, kube-proxy, kube-controller-manager, kube-scheduler. The first argument says which.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubecontrollermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	kubeproxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubescheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var components = map[string]func() *cobra.Command{
	"kubelet":                 func() *cobra.Command { return kubelet.NewKubeletCommand(context.Background()) },
	"kube-proxy":              kubeproxy.NewProxyCommand,
	"kube-controller-manager": kubecontrollermanager.NewControllerManagerCommand,
	"kube-scheduler":          func() *cobra.Command { return kubescheduler.NewSchedulerCommand() },
}

func main() {
	if len(os.Args) < 2 || components[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "node: the first argument is one of %q\n", slices.Sorted(maps.Keys(components)))
		os.Exit(2)
	}
	// Some of them read os.Args by themselves.
	os.Args = os.Args[1:]
	command := components[os.Args[0]]()
	command.SetArgs(os.Args[1:])
	os.Exit(cli.Run(command))
}
