package deploy

import (
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	"github.com/eventd/eventd/cmd/eventd/app"
	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/sizing"
)

// complete is deploy/ with all of its options, as an overlay would have it.
var complete = filepath.Join("testdata", "complete")

// Not in parallel: kubectl reads each object and then patches it, and other tests delete theirs.
func TestManifestsAreTakenByAnApiserverThatIsStrict(t *testing.T) {
	for _, folder := range []string{manifests, complete} {
		for _, how := range [][]string{nil, {"--server-side", "--force-conflicts"}} {
			out, err := cluster.Kubectl(t.Context(), append(how, "apply", "-k", folder, "--validate=strict", "--dry-run=server", "-o=name")...)
			if err != nil {
				t.Error(err)
			}
			for _, kind := range []string{
				"serviceaccount", "role.rbac.authorization.k8s.io", "clusterrole.rbac.authorization.k8s.io", "lease.coordination.k8s.io",
				"deployment.apps", "poddisruptionbudget.policy", "service", "networkpolicy.networking.k8s.io",
			} {
				for _, name := range []string{intake, observe} {
					if !strings.Contains("\n"+string(out), "\n"+kind+"/"+name) && !strings.Contains("\n"+string(out), "\n"+kind+"/"+accounts[name]) {
						t.Errorf("%s has no %s/%s:\n%s", folder, kind, name, out)
					}
				}
			}
		}
	}
}

func TestPageNamesTheKubernetesThatItIsTestedWith(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile(filepath.Join(repository, "docs", "deployment.md"))
	if err != nil {
		t.Fatal(err)
	}
	version, err := administrator().Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	tested := regexp.MustCompile(`tested with .*\b` + regexp.QuoteMeta(version.GitVersion) + `\b`)
	if !tested.Match(page) {
		t.Errorf("docs/deployment.md does not say that it is tested with %s", version.GitVersion)
	}
}

// podOf is what a Deployment's controller would make of its template.
func podOf(t *testing.T, folder, name string) *corev1.Pod {
	template := deploymentOf(t, folder, name).Spec.Template
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "eventd-", Labels: template.Labels, Annotations: template.Annotations},
		Spec:       template.Spec,
	}
}

func TestPodIsAdmittedWhereRestrictedIsEnforced(t *testing.T) {
	t.Parallel()
	client := administrator()
	namespace := cluster.Namespace(t)
	_, err := client.CoreV1().Namespaces().Patch(t.Context(), namespace, "application/merge-patch+json",
		[]byte(`{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":"restricted"}}}`), metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	create := func(pod *corev1.Pod) error {
		_, err := client.CoreV1().Pods(namespace).Create(t.Context(), pod, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		return err
	}
	// The admission plugin learns of the label by watching.
	if err := await.Success(t.Context(), await.Timeout, func() error {
		pod := podOf(t, manifests, intake)
		pod.Spec.HostNetwork = true
		pod.Spec.Containers[0].Ports[0].HostPort = pod.Spec.Containers[0].Ports[0].ContainerPort
		if err := create(pod); !apierrors.IsForbidden(err) {
			return fmt.Errorf("a Pod on the network of its node: %v", err)
		}
		return nil
	}); err != nil {
		t.Fatal("restricted is not enforced: ", err)
	}
	for name, spoil := range map[string]func(*corev1.PodSpec){
		"root":                 func(s *corev1.PodSpec) { s.SecurityContext.RunAsNonRoot = nil },
		"seccomp":              func(s *corev1.PodSpec) { s.SecurityContext.SeccompProfile = nil },
		"capabilities":         func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.Capabilities = nil },
		"privilege escalation": func(s *corev1.PodSpec) { s.Containers[0].SecurityContext.AllowPrivilegeEscalation = nil },
	} {
		pod := podOf(t, manifests, intake)
		spoil(&pod.Spec)
		if err := create(pod); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "PodSecurity") {
			t.Errorf("%s: got %v", name, err)
		}
	}
	for _, folder := range []string{manifests, exampleReceivers} {
		for _, name := range []string{intake, observe} {
			if err := create(podOf(t, folder, name)); err != nil {
				t.Errorf("%s: %s: %v", folder, name, err)
			}
		}
	}
	for folder, name := range exampleClients {
		if err := create(podOf(t, folder, name)); err != nil {
			t.Errorf("%s: %v", folder, err)
		}
	}
}

// The restricted level does not require this.
func TestContainerWritesOnlyItsIdentity(t *testing.T) {
	t.Parallel()
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			c := containerOf(t, manifests, name)
			pod := deploymentOf(t, manifests, name).Spec.Template.Spec.SecurityContext
			for what, id := range map[string]*int64{"user": pod.RunAsUser, "group": pod.RunAsGroup, "group of its volumes": pod.FSGroup} {
				if ptr.Deref(id, 0) == 0 {
					t.Errorf("its %s is that of root, or of the image", what)
				}
			}
			if added := c.SecurityContext.Capabilities.Add; len(added) > 0 {
				t.Errorf("it has the capabilities %v", added)
			}
			if !ptr.Deref(c.SecurityContext.ReadOnlyRootFilesystem, false) {
				t.Error("its root can be written")
			}
			written := map[string]bool{} // by volume
			for _, mount := range c.VolumeMounts {
				written[mount.Name] = !mount.ReadOnly
			}
			for _, volume := range deploymentOf(t, manifests, name).Spec.Template.Spec.Volumes {
				// The file of its identity needs neither a disk nor more than a page of memory.
				file := volume.EmptyDir != nil && volume.EmptyDir.Medium == corev1.StorageMediumMemory && volume.EmptyDir.SizeLimit.Value() <= 1<<20
				if written[volume.Name] && !file {
					t.Errorf("it can write to the volume %s", volume.Name)
				}
			}
		})
	}
}

// pinned is an image with a version or a digest.
var pinned = regexp.MustCompile(`^[^:@]+(:v?\d+\.\d+\.\d+\S*|(:\S+)?@sha256:[0-9a-f]{64})$`)

// Nothing that runs is named by a tag that moves.
func TestImagesHaveAVersion(t *testing.T) {
	images := 0
	for _, folder := range []string{manifests, complete, example, exampleReceivers, exampleClient, exampleController} {
		for _, object := range rendered(t, folder) {
			d, ok := object.(*appsv1.Deployment)
			if !ok {
				continue
			}
			for _, c := range append(d.Spec.Template.Spec.InitContainers, d.Spec.Template.Spec.Containers...) {
				images++
				if !pinned.MatchString(c.Image) {
					t.Errorf("%s: the image %q has neither a version nor a digest", folder, c.Image)
				}
			}
		}
	}
	if images < 2 {
		t.Errorf("only %d images", images)
	}
}

// options are what the flags of a Deployment come to.
func options(t *testing.T, name string) (*app.Options, *pflag.FlagSet) {
	t.Helper()
	o, flags := parse(t, deployedFlags(t, manifests, name))
	if err := o.Validate(); err != nil {
		t.Error(err)
	}
	return o, flags
}

func parse(t *testing.T, arguments []string) (*app.Options, *pflag.FlagSet) {
	t.Helper()
	o := app.NewOptions()
	flags := pflag.NewFlagSet("eventd", pflag.ContinueOnError)
	for _, set := range o.Flags().FlagSets {
		flags.AddFlagSet(set)
	}
	if err := flags.Parse(arguments); err != nil {
		t.Fatal(err)
	}
	return o, flags
}

func TestFlagsOfTheDeploymentAreThoseOfEventd(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			o, flags := options(t, name)
			c := containerOf(t, manifests, name)
			if port := c.Ports[0].ContainerPort; int(port) != o.SecureServing.BindPort {
				t.Errorf("it serves on %d, and the Pod says %d", o.SecureServing.BindPort, port)
			}
			volumes := deploymentOf(t, manifests, name).Spec.Template.Spec.Volumes
			volume := volumes[slices.IndexFunc(volumes, func(v corev1.Volume) bool { return v.Projected != nil })]
			token := volume.Projected.Sources[0].ServiceAccountToken
			if token.Audience != flags.Lookup("peer-audience").Value.String() {
				t.Errorf("the token is for %q", token.Audience)
			}
			mount := c.VolumeMounts[slices.IndexFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool { return m.Name == volume.Name })]
			if file := flags.Lookup("peer-token-file"); file.Value.String() != path.Join(mount.MountPath, token.Path) || file.DefValue != file.Value.String() {
				t.Errorf("the token is at %s, and is looked for at %s (by default at %s)", path.Join(mount.MountPath, token.Path), file.Value, file.DefValue)
			}
			if lease := o.LeaseName(); lease != accounts[name] || !slices.ContainsFunc(granted(t, name), func(r right) bool { return r.resource == "leases" && r.name == lease }) {
				t.Errorf("it is elected by the Lease %s, and has no right to that", lease)
			}
		})
	}
}

// A kubelet substitutes them. The other tests have values of this machine in their place.
func TestVariablesOfTheFlagsAreThoseOfThePod(t *testing.T) {
	c := containerOf(t, complete, observe)
	from := map[string]corev1.EnvVarSource{}
	for _, env := range c.Env {
		from[env.Name] = ptr.Deref(env.ValueFrom, corev1.EnvVarSource{})
	}
	want := map[string]string{"POD_IP": "status.podIP", "POD_NAMESPACE": "metadata.namespace", "EVENTD_CLUSTER_NAME": ""}
	for _, variable := range regexp.MustCompile(`\$\((\w+)\)`).FindAllStringSubmatch(strings.Join(c.Args, " "), -1) {
		name := variable[1]
		field := ptr.Deref(from[name].FieldRef, corev1.ObjectFieldSelector{}).FieldPath
		if path, known := want[name]; !known || field != path {
			t.Errorf("%s is the field %q of the Pod, want %q", name, field, path)
		}
		delete(want, name)
	}
	if len(want) > 0 {
		t.Errorf("no flag has %v", want)
	}
	key := ptr.Deref(from["EVENTD_CLUSTER_NAME"].ConfigMapKeyRef, corev1.ConfigMapKeySelector{})
	for _, object := range rendered(t, complete) {
		if m, ok := object.(*corev1.ConfigMap); ok && m.Name == key.Name && m.Data[key.Key] != "" {
			return
		}
	}
	t.Errorf("no ConfigMap has the key of %v", key)
}

// A replica that is not ready, such as one without a leader, must not be restarted for that, nor one that
// starts while the apiserver does not answer.
func TestOnlyAReplicaThatDoesNotLiveIsRestarted(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			c := containerOf(t, manifests, name)
			for _, probe := range []*corev1.Probe{c.StartupProbe, c.LivenessProbe} {
				if patience := time.Duration(probe.FailureThreshold*probe.PeriodSeconds) * time.Second; probe.HTTPGet.Path != "/livez" || patience < time.Minute {
					t.Errorf("it is restarted if %s fails for %s", probe.HTTPGet.Path, patience)
				}
			}
			// A kubelet also probes a Pod that is being deleted, and reports the failure.
			if path := c.ReadinessProbe.HTTPGet.Path; path != "/readyz?exclude=shutdown" {
				t.Errorf("it gets requests while %s succeeds", path)
			}
		})
	}
}

// A kubelet kills what has not ended by then.
func TestEventdHasTimeToEnd(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			o, flags := options(t, name)
			grace := time.Duration(*deploymentOf(t, manifests, name).Spec.Template.Spec.TerminationGracePeriodSeconds) * time.Second
			if grace < o.ShutdownGracePeriod+5*time.Second {
				t.Errorf("eventd takes up to %s to end, and is killed after %s", o.ShutdownGracePeriod, grace)
			}
			delay, err := flags.GetDuration("shutdown-delay-duration")
			if err != nil || delay <= 0 || delay > o.ShutdownGracePeriod/2 {
				t.Errorf("of the %s that it has it serves on for %s (%v)", o.ShutdownGracePeriod, delay, err)
			}
			ready := containerOf(t, manifests, name).ReadinessProbe
			if unready := time.Duration(ready.FailureThreshold*ready.PeriodSeconds) * time.Second; unready > o.ShutdownGracePeriod {
				t.Errorf("that it ends is noticed after %s", unready)
			}
		})
	}
}

func TestMemoryIsEnoughForWhateverItIsSent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "docs", "sizing.md"))
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{intake, observe} {
		o, _ := options(t, name)
		advice := sizing.Advise(sizing.Memory(o))
		c := containerOf(t, manifests, name)
		limit := c.Resources.Limits.Memory()
		if limit.Value() != advice.ContainerLimit {
			t.Errorf("%s: the limit is %d MiB, want %d", name, limit.Value()>>20, advice.ContainerLimit>>20)
		}
		soft := c.Env[slices.IndexFunc(c.Env, func(env corev1.EnvVar) bool { return env.Name == "GOMEMLIMIT" })].Value
		if quantity, err := resource.ParseQuantity(strings.TrimSuffix(soft, "B")); err != nil || quantity.Value() != advice.GoMemLimit {
			t.Errorf("%s: GOMEMLIMIT is %s, want %d MiB (%v)", name, soft, advice.GoMemLimit>>20, err)
		}
		if said := fmt.Sprintf("`GOMEMLIMIT=%s`, and a memory limit of `%s` for the container.", soft, limit); !strings.Contains(string(page), said) {
			t.Errorf("docs/sizing.md does not say %s", said)
		}
	}
}

// The rows of the sizes are those of the command.
func TestSizesAreThoseOfTheirFlags(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(repository, "docs", "sizing.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| [0-9,]+ \\| `(--role=[^`]+)` \\| (\\w+) \\| (\\w+) \\|$").FindAllStringSubmatch(string(page), -1)
	if len(rows) != 6 {
		t.Errorf("%d rows of sizes, want 6", len(rows))
	}
	for _, row := range rows {
		o, _ := parse(t, strings.Fields(row[1]))
		limit, soft := resource.MustParse(row[2]), resource.MustParse(strings.TrimSuffix(row[3], "B"))
		if want := sizing.Advise(sizing.Memory(o)); limit.Value() != want.ContainerLimit || soft.Value() != want.GoMemLimit {
			t.Errorf("%s: %s and %s, want %d and %d MiB", row[1], row[2], row[3], want.ContainerLimit>>20, want.GoMemLimit>>20)
		}
	}
}

// Everything that looks for eventd's Pods finds them.
func TestSelectorsMatchThePods(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			pods := labels.Set(deploymentOf(t, manifests, name).Spec.Template.Labels)
			selectors := map[string]*metav1.LabelSelector{}
			add := func(kind string, s *metav1.LabelSelector) { selectors[kind] = s }
			for _, object := range rendered(t, manifests) {
				if meta, ok := object.(metav1.Object); !ok || meta.GetName() != name && meta.GetName() != accounts[name] {
					continue
				}
				switch o := object.(type) {
				case *appsv1.Deployment:
					add("Deployment", o.Spec.Selector)
					spec := o.Spec.Template.Spec
					for _, spread := range spec.TopologySpreadConstraints {
						add("spread by "+spread.TopologyKey, spread.LabelSelector)
					}
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
		})
	}
}

// A replica that is drained or replaced leaves another one that serves.
func TestOneReplicaServesAtAnyTime(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			d := deploymentOf(t, manifests, name)
			if *d.Spec.Replicas < 2 {
				t.Errorf("%d replicas", *d.Spec.Replicas)
			}
			if unavailable := d.Spec.Strategy.RollingUpdate.MaxUnavailable; unavailable == nil || unavailable.String() != "0" {
				t.Errorf("a rollout may take away %v", unavailable)
			}
			for _, object := range rendered(t, manifests) {
				budget, ok := object.(*policyv1.PodDisruptionBudget)
				if !ok || budget.Name != name {
					continue
				}
				if most := int32(budget.Spec.MaxUnavailable.IntValue()); most < 1 || most >= *d.Spec.Replicas {
					t.Errorf("a drain may take away %v", budget.Spec.MaxUnavailable)
				}
				if policy := ptr.Deref(budget.Spec.UnhealthyPodEvictionPolicy, ""); policy != policyv1.AlwaysAllow {
					t.Errorf("a replica that is not ready is evicted %q", policy)
				}
			}
		})
	}
}

// Replicas share neither a node nor a zone if there is another, and run if there is none. Those that a rollout
// replaces do not count: they would send all new ones to the same node. They are not evicted for others.
func TestReplicasAreSpread(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			pod := deploymentOf(t, manifests, name).Spec.Template.Spec
			if pod.Affinity != nil {
				t.Errorf("replicas are kept apart by an affinity, which counts all: %v", pod.Affinity)
			}
			var keys []string
			for _, spread := range pod.TopologySpreadConstraints {
				keys = append(keys, spread.TopologyKey)
				if spread.MaxSkew != 1 || spread.WhenUnsatisfiable != corev1.ScheduleAnyway || !slices.Equal(spread.MatchLabelKeys, []string{appsv1.DefaultDeploymentUniqueLabelKey}) {
					t.Errorf("replicas are spread by %+v", spread)
				}
			}
			if !slices.Equal(keys, []string{corev1.LabelHostname, corev1.LabelTopologyZone}) {
				t.Errorf("replicas are spread by %q", keys)
			}
			if pod.PriorityClassName != "system-cluster-critical" {
				t.Errorf("its priority is %q", pod.PriorityClassName)
			}
		})
	}
}

// Clients and other replicas connect to the port that eventd serves on, from anywhere, and eventd to the
// apiserver.
func TestPortsAreThoseOfThePods(t *testing.T) {
	for _, name := range []string{intake, observe} {
		t.Run(name, func(t *testing.T) {
			served := containerOf(t, manifests, name).Ports[0].Name
			for _, object := range rendered(t, manifests) {
				if meta, ok := object.(metav1.Object); !ok || meta.GetName() != name && meta.GetName() != accounts[name] {
					continue
				}
				switch o := object.(type) {
				case *corev1.Service:
					if port := o.Spec.Ports[0].TargetPort.String(); port != served {
						t.Errorf("the Service leads to the port %s", port)
					}
				case *networkingv1.NetworkPolicy:
					in, peers := o.Spec.Ingress[0], o.Spec.Egress[1]
					if len(o.Spec.Ingress) != 1 || len(in.From) > 0 || in.Ports[0].Port.String() != served || peers.Ports[0].Port.String() != served {
						t.Errorf("the policy allows %+v, and %+v between replicas", o.Spec.Ingress, peers)
					}
					if !slices.Equal(o.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
						t.Errorf("the policy is for %v", o.Spec.PolicyTypes)
					}
					apiserver := []string{"443 TCP", "6443 TCP"}
					for _, port := range apiserver {
						if !allows(o, port) {
							t.Errorf("the policy does not allow the apiserver at %s", port)
						}
					}
					if rules := o.Spec.Egress; name == intake && (len(rules) != 2 || len(rules[0].Ports) != len(apiserver)) {
						t.Errorf("the intake may connect to more than the apiserver and replicas: %+v", rules)
					}
				}
			}
		})
	}
}
