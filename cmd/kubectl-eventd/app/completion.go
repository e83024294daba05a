package app

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/eventd/eventd/cmd/kubectl-eventd/client"
)

const (
	// completionTimeout is for the list of names; a shell waits for it.
	completionTimeout = 3 * time.Second
	maxCompleted      = 500
)

// completedKinds are offered for KIND/NAME.
var completedKinds = []string{"cronjob/", "daemonset/", "deployment/", "job/", "node/", "persistentvolumeclaim/", "pod/", "replicaset/", "service/", "statefulset/"}

// complete offers the values of a flag.
func complete(cmd *cobra.Command, flag string, values ...string) {
	_ = cmd.RegisterFlagCompletionFunc(flag, cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

// completeFlags offers the values of the flags of all commands.
func (p *plugin) completeFlags(cmd *cobra.Command) {
	complete(cmd, "connect", client.Connects...)
	complete(cmd, "output", formats...)
	_ = cmd.RegisterFlagCompletionFunc("namespace", func(cmd *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		return p.names(cmd.Context(), schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}, "", begun), cobra.ShellCompDirectiveNoFileComp
	})
	_ = cmd.RegisterFlagCompletionFunc("context", func(_ *cobra.Command, _ []string, begun string) ([]string, cobra.ShellCompDirective) {
		config, err := p.kubeconfig.ToRawKubeConfigLoader().RawConfig()
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return beginning(slices.Collect(maps.Keys(config.Contexts)), begun), cobra.ShellCompDirectiveNoFileComp
	})
}

// completeObject offers kinds, and the names of those that the caller may list.
func (p *plugin) completeObject(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	kind, name, named := strings.Cut(begun, "/")
	if !named {
		return beginning(completedKinds, begun), cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
	}
	mapping, err := p.mapping(kind)
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	namespace, _, err := p.kubeconfig.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	if (object{mapping: mapping}).clusterScoped() {
		namespace = ""
	}
	names := p.names(cmd.Context(), mapping.Resource, namespace, name)
	for i := range names {
		names[i] = kind + "/" + names[i]
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// names lists objects; none after an error, which a shell could not show.
func (p *plugin) names(ctx context.Context, resource schema.GroupVersionResource, namespace, begun string) []string {
	reader, err := p.metadata()
	if err != nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, completionTimeout)
	defer cancel()
	return beginning(namesOf(ctx, reader.Resource(resource).Namespace(namespace)), begun)
}

// beginning returns the sorted values that begin with what was typed.
func beginning(values []string, begun string) []string {
	var out []string
	for _, value := range values {
		if strings.HasPrefix(value, begun) {
			out = append(out, value)
		}
	}
	slices.Sort(out)
	return out
}
