package deploy

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/spf13/pflag"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/internal/sizing"
)

// options are what the Deployment's flags come to.
func options(t *testing.T) (*app.Options, *pflag.FlagSet) {
	t.Helper()
	o := app.NewOptions()
	flags := pflag.NewFlagSet("eventd", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(deployedFlags(t)); err != nil {
		t.Fatal(err)
	}
	return o, flags
}

func TestFlagsOfTheDeploymentAreThoseOfEventd(t *testing.T) {
	o, flags := options(t)
	c := container(t)
	if port := c.Ports[0].ContainerPort; int(port) != o.SecureServing.BindPort {
		t.Errorf("it serves on %d, and the Pod says %d", o.SecureServing.BindPort, port)
	}
	volume := deployment(t).Spec.Template.Spec.Volumes[0]
	token := volume.Projected.Sources[0].ServiceAccountToken
	if token.Audience != flags.Lookup("peer-audience").Value.String() {
		t.Errorf("the token is for %q", token.Audience)
	}
	mount := c.VolumeMounts[0]
	if file := flags.Lookup("peer-token-file"); mount.Name != volume.Name || file.Value.String() != path.Join(mount.MountPath, token.Path) || file.DefValue != file.Value.String() {
		t.Errorf("the token is at %s, and is looked for at %s (by default at %s)", path.Join(mount.MountPath, token.Path), file.Value, file.DefValue)
	}
	if lease := flags.Lookup("leader-elect-resource-name").Value.String(); !slices.ContainsFunc(granted(t), func(r right) bool { return r.resource == "leases" && r.name == lease }) {
		t.Errorf("it is elected by the Lease %s, and has no right to that", lease)
	}
}

// A kubelet kills what has not ended by then.
func TestEventdHasTimeToEnd(t *testing.T) {
	o, flags := options(t)
	grace := time.Duration(*deployment(t).Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
	if grace < o.ShutdownGracePeriod+5*time.Second {
		t.Errorf("eventd takes up to %s to end, and is killed after %s", o.ShutdownGracePeriod, grace)
	}
	delay, err := flags.GetDuration("shutdown-delay-duration")
	if err != nil || delay <= 0 || delay > o.ShutdownGracePeriod/2 {
		t.Errorf("of the %s that it has it serves on for %s (%v)", o.ShutdownGracePeriod, delay, err)
	}
	ready := container(t).ReadinessProbe
	if unready := time.Duration(ready.FailureThreshold*ready.PeriodSeconds) * time.Second; unready > o.ShutdownGracePeriod {
		t.Errorf("that it ends is noticed after %s", unready)
	}
}

func TestMemoryIsEnoughForWhateverItIsSent(t *testing.T) {
	o, _ := options(t)
	advice := sizing.Advise(sizing.Memory(o))
	c := container(t)
	limit := c.Resources.Limits.Memory()
	if limit.Value() != advice.ContainerLimit {
		t.Errorf("the limit is %d MiB, want %d", limit.Value()>>20, advice.ContainerLimit>>20)
	}
	var soft string
	for _, env := range c.Env {
		if env.Name == "GOMEMLIMIT" {
			soft = env.Value
		}
	}
	if quantity, err := resource.ParseQuantity(strings.TrimSuffix(soft, "B")); err != nil || quantity.Value() != advice.GoMemLimit {
		t.Errorf("GOMEMLIMIT is %s, want %d MiB (%v)", soft, advice.GoMemLimit>>20, err)
	}
	page, err := os.ReadFile(filepath.Join(repository, "docs", "sizing.md"))
	if said := fmt.Sprintf("`GOMEMLIMIT=%s`, and a memory limit of `%s` for the container.", soft, limit); err != nil || !strings.Contains(string(page), said) {
		t.Errorf("docs/sizing.md does not say %s (%v)", said, err)
	}
}

// Everything that looks for eventd's Pods finds them.
func TestSelectorsMatchThePods(t *testing.T) {
	pods := labels.Set(deployment(t).Spec.Template.Labels)
	selectors := map[string]*metav1.LabelSelector{}
	add := func(kind string, s *metav1.LabelSelector) { selectors[kind] = s }
	for _, object := range rendered(t, manifests) {
		switch o := object.(type) {
		case *appsv1.Deployment:
			add("Deployment", o.Spec.Selector)
			spec := o.Spec.Template.Spec
			add("anti-affinity", spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].PodAffinityTerm.LabelSelector)
			add("topology spread", spec.TopologySpreadConstraints[0].LabelSelector)
		case *policyv1.PodDisruptionBudget:
			add("PodDisruptionBudget", o.Spec.Selector)
		case *networkingv1.NetworkPolicy:
			add("NetworkPolicy", &o.Spec.PodSelector)
			add("its egress", o.Spec.Egress[1].To[0].PodSelector)
		case *corev1.Service:
			add("Service", &metav1.LabelSelector{MatchLabels: o.Spec.Selector})
		}
	}
	if len(selectors) != 7 {
		t.Errorf("found the selectors of %v", slices.Sorted(maps.Keys(selectors)))
	}
	for kind, s := range selectors {
		selector, err := metav1.LabelSelectorAsSelector(s)
		if err != nil || selector.Empty() || !selector.Matches(pods) {
			t.Errorf("%s selects %v (%v)", kind, selector, err)
		}
	}
}

// A replica that is drained or replaced leaves another one that serves.
func TestOneReplicaServesAtAnyTime(t *testing.T) {
	d := deployment(t)
	if *d.Spec.Replicas < 2 {
		t.Errorf("%d replicas", *d.Spec.Replicas)
	}
	if unavailable := d.Spec.Strategy.RollingUpdate.MaxUnavailable; unavailable == nil || unavailable.String() != "0" {
		t.Errorf("a rollout may take away %v", unavailable)
	}
	for _, object := range rendered(t, manifests) {
		if budget, ok := object.(*policyv1.PodDisruptionBudget); ok && int32(budget.Spec.MaxUnavailable.IntValue()) >= *d.Spec.Replicas {
			t.Errorf("a drain may take away %v", budget.Spec.MaxUnavailable)
		}
	}
}
