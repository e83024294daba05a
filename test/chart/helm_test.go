package chart

import (
	"testing"
	"time"

	"helm.sh/helm/v4/pkg/action"
	"helm.sh/helm/v4/pkg/kube"
	"k8s.io/cli-runtime/pkg/genericclioptions"

	"github.com/eventd/eventd/test/testenv"
)

// patience bounds each action of Helm.
const patience = time.Minute

// helm runs actions on one release. No controller runs in the cluster, so none waits for readiness.
type helm struct {
	configuration   *action.Configuration
	name, namespace string
}

func newHelm(t *testing.T, cluster *testenv.ControlPlane, name, namespace string) *helm {
	t.Helper()
	flags := genericclioptions.NewConfigFlags(false)
	kubeconfig := cluster.Kubeconfig()
	flags.KubeConfig, flags.Namespace = &kubeconfig, &namespace
	configuration := action.NewConfiguration()
	if err := configuration.Init(flags, namespace, "secrets"); err != nil {
		t.Fatal(err)
	}
	return &helm{configuration, name, namespace}
}

func (h *helm) install(t *testing.T, values string, options ...func(*action.Install)) error {
	t.Helper()
	install := action.NewInstall(h.configuration)
	for _, set := range options {
		set(install)
	}
	install.ReleaseName, install.Namespace, install.WaitStrategy, install.Timeout = h.name, h.namespace, kube.HookOnlyStrategy, patience
	_, err := install.RunWithContext(t.Context(), load(t, folder), parse(t, values))
	return err
}

func (h *helm) upgrade(t *testing.T, values string) error {
	t.Helper()
	upgrade := action.NewUpgrade(h.configuration)
	upgrade.Namespace, upgrade.WaitStrategy, upgrade.Timeout = h.namespace, kube.HookOnlyStrategy, patience
	_, err := upgrade.RunWithContext(t.Context(), h.name, load(t, folder), parse(t, values))
	return err
}

func (h *helm) rollback(revision int) error {
	rollback := action.NewRollback(h.configuration)
	rollback.Version, rollback.WaitStrategy, rollback.Timeout = revision, kube.HookOnlyStrategy, patience
	return rollback.Run(h.name)
}

func (h *helm) uninstall() error {
	uninstall := action.NewUninstall(h.configuration)
	uninstall.WaitStrategy, uninstall.Timeout = kube.HookOnlyStrategy, patience
	_, err := uninstall.Run(h.name)
	return err
}
