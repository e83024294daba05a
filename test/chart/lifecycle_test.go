package chart

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v4/pkg/action"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// A release is installed, upgraded to all components, rolled back, and uninstalled, while an eventd leads,
// which runs until after that, as Pods do. Each time there is what the chart renders and no more, the leader
// stays, and so do its CA and cursors.
func TestReleaseIsUpgradedAndLeavesNothingBehind(t *testing.T) {
	cluster := testenv.Shared(t)
	client := clientset.NewForConfigOrDie(cluster.Config())
	binary := buildEventd(t)
	for _, namespace := range []string{"kube-system", cluster.Namespace(t)} {
		before := stored(t, cluster)
		h := newHelm(t, cluster, "any", namespace)
		if err := h.install(t, ""); err != nil {
			t.Fatal(err)
		}
		hasAdded(t, cluster, before, rendered(t, namespace, ""), 1)
		leader := start(t, cluster, binary, namespace)
		holder, ca := leads(t, client, namespace), publishes(t, client, namespace)

		if err := h.upgrade(t, inCluster); err != nil {
			t.Fatal(err)
		}
		hasAdded(t, cluster, before, rendered(t, namespace, inCluster), 2)
		const cursors = "eventd-cursors"
		writeCursor(t, client, namespace, cursors)
		if err := h.upgrade(t, inCluster+"\nintake: {replicas: 3}"); err != nil {
			t.Fatal(err)
		}
		if kept, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), cursors, metav1.GetOptions{}); err != nil || kept.Data["collector"] == "" {
			t.Errorf("an upgrade left the cursors %v (%v)", kept.Data, err)
		}
		if err := h.rollback(1); err != nil {
			t.Fatal(err)
		}
		hasAdded(t, cluster, before, rendered(t, namespace, ""), 4)
		if now := leads(t, client, namespace); now != holder {
			t.Errorf("%s leads, and %s did before the upgrades", now, holder)
		}
		if publishes(t, client, namespace) != ca {
			t.Error("the upgrades have replaced the CA")
		}

		if err := h.uninstall(); err != nil {
			t.Fatal(err)
		}
		hasAdded(t, cluster, before, nil, 0)
		// It cannot create its Lease and its CA again: its rights were removed first.
		await.Until(t, "eventd to be refused", func() bool {
			return strings.Contains(leader.Stderr(), `leases.coordination.k8s.io \"eventd\" is forbidden`)
		})
		leader.Kill()
		hasAdded(t, cluster, before, nil, 0)
	}
}

// What kubectl has applied becomes a release, as docs/helm.md describes.
func TestReleaseTakesOverWhatKubectlHasApplied(t *testing.T) {
	cluster := testenv.Shared(t)
	before := stored(t, cluster)
	if _, err := cluster.Kubectl(t.Context(), "apply", "-k", filepath.Join(repository, "deploy")); err != nil {
		t.Fatal(err)
	}
	h := newHelm(t, cluster, "any", "kube-system")
	takeOver := func(i *action.Install) { i.TakeOwnership, i.ForceConflicts = true, true }
	if err := h.install(t, "", takeOver); err != nil {
		t.Fatal(err)
	}
	hasAdded(t, cluster, before, rendered(t, "kube-system", ""), 1)
	if err := h.uninstall(); err != nil {
		t.Fatal(err)
	}
	hasAdded(t, cluster, before, nil, 0)
}

// A cluster has one eventd, since the names of its roles are fixed: a second release is refused, and
// changes nothing.
func TestSecondReleaseIsRefused(t *testing.T) {
	cluster := testenv.Shared(t)
	first := newHelm(t, cluster, "first", "kube-system")
	if err := first.install(t, ""); err != nil {
		t.Fatal(err)
	}
	second := newHelm(t, cluster, "second", cluster.Namespace(t))
	before := stored(t, cluster)
	if err := second.install(t, ""); err == nil || !strings.Contains(err.Error(), `ClusterRole "eventd`) {
		t.Errorf("got %v", err)
	}
	hasAdded(t, cluster, before, nil, 0)
	if err := first.uninstall(); err != nil {
		t.Fatal(err)
	}
}

// buildEventd builds eventd as it is in the image.
func buildEventd(t *testing.T) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), "eventd")
	build := exec.CommandContext(t.Context(), filepath.Join(repository, "hack", "static.sh"), binary)
	build.Env = append(os.Environ(), "GOOS="+runtime.GOOS)
	if printed, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, printed)
	}
	return binary
}

// start runs the intake with the account and the flags of the release, but for those of this machine.
func start(t *testing.T, cluster *testenv.ControlPlane, binary, namespace string) *replica.Replica {
	t.Helper()
	deployment, err := clientset.NewForConfigOrDie(cluster.Config()).AppsV1().Deployments(namespace).Get(t.Context(), "eventd-intake", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var flags []string
	for _, flag := range deployment.Spec.Template.Spec.Containers[0].Args {
		if strings.HasPrefix(flag, "--config=") { // which is in no volume here
			continue
		}
		flags = append(flags, strings.NewReplacer("$(POD_IP)", "127.0.0.1", "$(POD_NAMESPACE)", namespace).Replace(flag))
	}
	r, err := replica.Launch(replica.Options{
		Binary:      binary,
		Credentials: cluster.ServiceAccount(t, namespace, "eventd"),
		PeerToken:   cluster.ServiceAccount(t, namespace, "eventd", "eventd").BearerToken,
		Dir:         t.TempDir(),
		Flags:       append(flags, "--bind-address=127.0.0.1", "--secure-port=0"),
	})
	if err != nil {
		t.Fatal(err)
	}
	r.KillAfter(t)
	if err := r.WaitServing(t.Context(), await.Timeout); err != nil {
		t.Fatal(err)
	}
	return r
}

// leads waits until a process holds the Lease of the release, and returns its name.
func leads(t *testing.T, client clientset.Interface, namespace string) (holder string) {
	t.Helper()
	await.Until(t, "a leader", func() bool {
		lease, err := client.CoordinationV1().Leases(namespace).Get(t.Context(), "eventd", metav1.GetOptions{})
		if err == nil && lease.Spec.HolderIdentity != nil {
			holder = *lease.Spec.HolderIdentity
		}
		return holder != ""
	})
	return holder
}

// publishes waits until eventd has a CA, and returns it.
func publishes(t *testing.T, client clientset.Interface, namespace string) (ca string) {
	t.Helper()
	await.Until(t, "a CA", func() bool {
		published, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "eventd-serving-ca", metav1.GetOptions{})
		if err == nil {
			ca = published.Data["ca.crt"]
		}
		return ca != ""
	})
	return ca
}

// writeCursor is what eventd does for a receiver.
func writeCursor(t *testing.T, client clientset.Interface, namespace, name string) {
	t.Helper()
	patch := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":%q},"data":{"collector":"7"}}`, name)
	_, err := client.CoreV1().ConfigMaps(namespace).Patch(t.Context(), name, "application/apply-patch+yaml", []byte(patch), metav1.PatchOptions{FieldManager: "eventd"})
	if err != nil {
		t.Fatal(err)
	}
}

// stored lists the objects in the cluster by kind, namespace and name. It leaves out what the apiserver
// writes of its own accord, and Events, which expire.
func stored(t *testing.T, cluster *testenv.ControlPlane) map[string]bool {
	t.Helper()
	config := cluster.Config()
	config.WarningHandler = rest.NoWarnings{} // about kinds that are deprecated
	client := dynamic.NewForConfigOrDie(config)
	lists, err := discovery.NewDiscoveryClientForConfigOrDie(config).ServerPreferredResources()
	if len(lists) == 0 { // an APIService that does not answer is an error beside them
		t.Fatal(err)
	}
	out := map[string]bool{}
	for _, list := range lists {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			t.Fatal(err)
		}
		for _, resource := range list.APIResources {
			if !slices.Contains(resource.Verbs, "list") || resource.Kind == "Event" {
				continue
			}
			objects, err := client.Resource(version.WithResource(resource.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("listing %s: %v", resource.Name, err)
			}
			for _, object := range objects.Items {
				if !ofApiserver(object.GetManagedFields()) {
					out[key(resource.Kind, object.GetNamespace(), object.GetName())] = true
				}
			}
		}
	}
	return out
}

func key(kind, namespace, name string) string { return kind + " " + namespace + "/" + name }

func ofApiserver(fields []metav1.ManagedFieldsEntry) bool {
	for _, entry := range fields {
		if entry.Manager != "controlplane" {
			return false
		}
	}
	return len(fields) > 0
}

// hasAdded waits for nothing: since before there are the rendered objects, and Helm's record of each
// revision.
func hasAdded(t *testing.T, cluster *testenv.ControlPlane, before map[string]bool, rendered objects, revisions int) {
	t.Helper()
	var want, got []string
	for _, object := range rendered {
		metadata := object["metadata"].(map[string]any)
		namespace, _ := metadata["namespace"].(string)
		want = append(want, key(object["kind"].(string), namespace, metadata["name"].(string)))
	}
	secrets := 0
	for object := range maps.Keys(stored(t, cluster)) {
		switch {
		case before[object]:
		case strings.HasPrefix(object, "Secret ") && strings.Contains(object, "/sh.helm.release.v1."):
			secrets++
		default:
			got = append(got, object)
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(want, got) || secrets != revisions {
		t.Errorf("there are %d revisions and\n%s\nwant %d and\n%s", secrets, strings.Join(got, "\n"), revisions, strings.Join(want, "\n"))
	}
}
