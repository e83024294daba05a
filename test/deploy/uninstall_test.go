package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// installed is deploy/ with all components that need nothing else in the cluster.
var installed = filepath.Join("testdata", "installed")

// installation is two replicas of each Deployment of installed in a cluster of their own, which have stored all that they ever
// store.
type installation struct {
	cluster   *testenv.ControlPlane
	client    kubernetes.Interface
	namespace string    // of the clients
	before    inventory // without eventd
	replicas  []*replica.Replica
}

// install applies installed, and runs its replicas with their flags, their configuration and the rights of their
// accounts. It returns when both are ready, and the Lease, the CA, the cursors and a client's Event are stored.
func install(t *testing.T) *installation {
	t.Helper()
	i := &installation{cluster: testenv.StartForTest(t, testenv.Options{})}
	i.client = kubernetes.NewForConfigOrDie(i.cluster.Config())
	i.namespace = i.cluster.Namespace(t)
	reporter := replica.Reporter(t, i.cluster, i.namespace)
	i.before = takeInventory(t, i.cluster)
	i.kubectl(t, "apply", "-k", installed, "--validate=strict")
	for _, name := range []string{intake, intake, observe, observe} {
		r := replica.Run(t, i.cluster, replica.Options{
			Binary:      binary,
			Credentials: i.cluster.ServiceAccount(t, metav1.NamespaceSystem, accounts[name]),
			PeerToken:   i.cluster.ServiceAccount(t, metav1.NamespaceSystem, accounts[name], "eventd").BearerToken,
			Flags:       i.flags(t, name),
		})
		await.Until(t, "a replica is ready", func() bool { return ready(t, r) == nil })
		i.replicas = append(i.replicas, r)
	}
	for n, r := range i.replicas[:2] {
		client := kubernetes.NewForConfigOrDie(r.Config(reporter)).CoreV1().Events(i.namespace)
		if _, err := client.Create(t.Context(), replica.Event(i.namespace, fmt.Sprint("event-", n), "web-0"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	await.Until(t, "the Lease, the CA, the cursors and an Event are stored", func() bool {
		lease, err := i.client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(t.Context(), "eventd", metav1.GetOptions{})
		held := err == nil && lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
		events, err := i.client.CoreV1().Events(i.namespace).List(t.Context(), metav1.ListOptions{})
		return held && err == nil && len(events.Items) == 1 && i.stored(t, cursors, "archive") && i.stored(t, "eventd-serving-ca", "ca.crt")
	})
	return i
}

func (i *installation) kubectl(t *testing.T, args ...string) {
	t.Helper()
	if _, err := i.cluster.Kubectl(t.Context(), args...); err != nil {
		t.Fatal(err)
	}
}

// stored reports whether a ConfigMap of kube-system has a key.
func (i *installation) stored(t *testing.T, name, key string) bool {
	t.Helper()
	found, err := i.client.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
	return err == nil && found.Data[key] != ""
}

// flags are those of a Deployment, as a kubelet gives them to a Pod, on this machine: with another network. Those that
// observe have a receiver.
func (i *installation) flags(t *testing.T, name string) []string {
	t.Helper()
	flags := slices.DeleteFunc(deployedFlags(t, installed, name), func(flag string) bool { return strings.Contains(flag, "--peer-token-file=") })
	// A replica on this machine cannot have the port and the address of the other one.
	flags = append(flags, "--bind-address=127.0.0.1", "--secure-port=0")
	if name == observe {
		dir := t.TempDir()
		file := filepath.Join(dir, "receiver.yaml")
		configuration := fmt.Sprintf(`{apiVersion: config.eventd.io/v1alpha1, kind: EventdConfiguration,
receivers: [{name: archive, jsonLines: {path: %q}}]}`, filepath.Join(dir, "archive.jsonl"))
		if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
			t.Fatal(err)
		}
		flags = append(flags, "--config="+file)
	}
	return flags
}

// wantNothingLeft checks that the cluster has the objects that it had without eventd.
func (i *installation) wantNothingLeft(t *testing.T) {
	t.Helper()
	now := takeInventory(t, i.cluster)
	if left := now.added(i.before); len(left) > 0 {
		t.Errorf("left behind, or changed: %q", left)
	}
	if gone := now.missing(i.before); len(gone) > 0 {
		t.Errorf("others' objects are gone: %q", gone)
	}
}

// What is installed is seen in the inventory, so the other tests can fail.
func (i *installation) wantAllFound(t *testing.T) {
	t.Helper()
	found := takeInventory(t, i.cluster).added(i.before)
	if want := len(rendered(t, installed)); len(found) != want {
		t.Errorf("%d objects are added, and %d are in the manifests: %q", len(found), want, found)
	}
}

// The replicas are ended first, as the documentation says: they write all that they have, and nothing is left
// of eventd but Events.
func TestUninstallLeavesNothing(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.wantAllFound(t)
	// Here is no kubelet, and no garbage collector for which the Deployment waits.
	i.kubectl(t, "delete", "-n", metav1.NamespaceSystem, "deployment", intake, observe, "--cascade=foreground", "--wait=false")
	for _, r := range i.replicas {
		r.Terminate(t)
	}
	i.kubectl(t, "patch", "-n", metav1.NamespaceSystem, "deployment", intake, "--type=merge", `-p={"metadata":{"finalizers":null}}`)
	i.kubectl(t, "patch", "-n", metav1.NamespaceSystem, "deployment", observe, "--type=merge", `-p={"metadata":{"finalizers":null}}`)
	i.kubectl(t, "delete", "-k", installed, "--ignore-not-found")
	i.wantNothingLeft(t)
}

// All is deleted at once while the replicas run, and have something to store. They lose their rights first, so
// they put back nothing that is deleted: neither while they run, nor when they end.
func TestUninstallWhileReplicasRunLeavesNothing(t *testing.T) {
	t.Parallel()
	i := install(t)
	i.kubectl(t, "delete", "-k", installed)
	// Its receiver has another one to deliver, and a cursor to store.
	_, err := i.client.CoreV1().Events(i.namespace).Create(t.Context(), replica.Event(i.namespace, "late", "web-1"), metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await.Until(t, "the leader gives up its Lease, which it cannot put back", func() bool {
		return !slices.ContainsFunc(i.replicas, func(r *replica.Replica) bool {
			return strings.Contains(get(t, r, "/readyz?verbose").Body, "role: leader")
		})
	})
	i.wantNothingLeft(t)
	for _, r := range i.replicas {
		if err := r.Send(syscall.SIGTERM); err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := await.Context(t)
	defer cancel()
	for _, r := range i.replicas {
		if _, err := r.Wait(ctx); err != nil { // the exit code may be 1: what was pending could not be written
			t.Error(err)
		}
	}
	i.wantNothingLeft(t)
}
