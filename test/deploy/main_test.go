package deploy

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

const (
	repository = "../.."
	manifests  = repository + "/deploy"
	// intake and observe are the Deployments of deploy/.
	intake, observe = "eventd-intake", "eventd-observe"
)

// accounts are their ServiceAccounts, which have the names of the Leases, the Services and more.
var accounts = map[string]string{intake: "eventd", observe: "eventd-observe"}

var (
	// binary is eventd as it is in the image.
	binary string
	// cluster is a control plane with an audit log and with deploy/ applied as in the
	// documentation.
	cluster *testenv.ControlPlane
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(prepared{m})
}

// prepared runs tests with all of that.
type prepared struct{ m *testing.M }

func (p prepared) Run() int {
	dir, err := os.MkdirTemp("", "deploy-")
	if err == nil {
		defer os.RemoveAll(dir)
		err = prepare(dir)
	}
	if cluster != nil {
		defer cluster.Stop()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "deploy:", err)
		return 1
	}
	return p.m.Run()
}

func prepare(dir string) error {
	binary = filepath.Join(dir, "eventd")
	if err := buildStatic(context.Background(), repository, binary); err != nil {
		return fmt.Errorf("building eventd: %w", err)
	}
	admission := filepath.Join(dir, "admission.yaml")
	if err := os.WriteFile(admission, []byte(eventRateLimit), 0o600); err != nil {
		return err
	}
	var err error
	cluster, err = testenv.Start(context.Background(), testenv.Options{Audit: true, APIServerArgs: []string{
		"--enable-admission-plugins=EventRateLimit", "--admission-control-config-file=" + admission,
	}})
	if err != nil {
		return err
	}
	_, err = cluster.Kubectl(context.Background(), "apply", "-k", manifests, "--validate=strict")
	return err
}

// buildStatic builds the binary of the image from a copy of this repository, for
// this machine.
func buildStatic(ctx context.Context, source, file string) error {
	build := exec.CommandContext(ctx, filepath.Join(source, "hack/static.sh"), file)
	build.Env = append(os.Environ(), "GOOS="+runtime.GOOS, "VERSION=v0.0.0-test", "COMMIT=0123abcd")
	build.Stderr = os.Stderr
	return build.Run()
}

func administrator() kubernetes.Interface { return kubernetes.NewForConfigOrDie(cluster.Config()) }

// deploymentOf is one of a folder.
func deploymentOf(t *testing.T, folder, name string) *appsv1.Deployment {
	t.Helper()
	for _, object := range rendered(t, folder) {
		if d, ok := object.(*appsv1.Deployment); ok && d.Name == name {
			return d
		}
	}
	t.Fatalf("%s has no %s", folder, name)
	return nil
}

// containerOf is the one of its Pods.
func containerOf(t *testing.T, folder, name string) *corev1.Container {
	t.Helper()
	containers := deploymentOf(t, folder, name).Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	return &containers[0]
}

// start runs the intake as an account, with the flags of its Deployment except for those
// of this machine. It does not wait until eventd serves.
func start(t *testing.T, account string, env ...string) *replica.Replica {
	t.Helper()
	return startAs(t, intake, account, nil, env...)
}

// startAs is start with the flags of either Deployment, and more of them.
func startAs(t *testing.T, name, account string, flags []string, env ...string) *replica.Replica {
	t.Helper()
	r, err := replica.Launch(replica.Options{
		Binary:      binary,
		Credentials: cluster.ServiceAccount(t, metav1.NamespaceSystem, account),
		PeerToken:   cluster.ServiceAccount(t, metav1.NamespaceSystem, account, "eventd").BearerToken,
		Dir:         t.TempDir(),
		Flags:       slices.Concat(deployedFlags(t, manifests, name), localFlags(name, account), flags),
		Env:         env,
	})
	if err != nil {
		t.Fatal(err)
	}
	r.KillAfter(t)
	return r
}

// deployedFlags are the flags of a Deployment, as a kubelet would give them to
// a Pod on this machine, with its configuration in a file of the test.
func deployedFlags(t *testing.T, folder, name string) (flags []string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "configuration.yaml")
	if err := os.WriteFile(file, []byte(configMapOf(t, folder, accounts[name]+"-configuration").Data["configuration.yaml"]), 0o600); err != nil {
		t.Fatal(err)
	}
	substitute := strings.NewReplacer("$(POD_IP)", "127.0.0.1", "$(POD_NAMESPACE)", metav1.NamespaceSystem,
		"$(EVENTD_CLUSTER_NAME)", "test", "/etc/eventd/config/configuration.yaml", file)
	for _, flag := range containerOf(t, folder, name).Args {
		flags = append(flags, substitute.Replace(flag))
	}
	return flags
}

func configMapOf(t *testing.T, folder, name string) *corev1.ConfigMap {
	t.Helper()
	for _, object := range rendered(t, folder) {
		if m, ok := object.(*corev1.ConfigMap); ok && m.Name == name {
			return m
		}
	}
	t.Fatalf("%s has no ConfigMap %s", folder, name)
	return nil
}

// localFlags replace what a Pod has: its network. They also keep the tests short: a
// write that is not allowed is not retried, and a repeat is written soon. A Lease that
// is not watched is read every few minutes only.
func localFlags(name, account string) []string {
	flags := []string{
		"--bind-address=127.0.0.1", "--secure-port=0", "--leader-elect-resource-name=" + account,
		"--leader-elect-lease-duration=15m", "--leader-elect-renew-deadline=10m", "--leader-elect-retry-period=5m",
		"--shutdown-delay-duration=0s",
	}
	if name == intake {
		flags = append(flags, "--forbidden-for=0s", "--series-heartbeat=10ms")
	}
	return flags
}

// serves waits until r serves.
func serves(t *testing.T, r *replica.Replica) error { return r.WaitServing(t.Context(), await.Timeout) }
