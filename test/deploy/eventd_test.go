package deploy

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

// deployment is that of deploy/.
func deployment(t *testing.T) *appsv1.Deployment {
	t.Helper()
	for _, object := range rendered(t, manifests) {
		if d, ok := object.(*appsv1.Deployment); ok {
			return d
		}
	}
	t.Fatal("deploy/ has no Deployment")
	return nil
}

// container is the one of its Pods.
func container(t *testing.T) *corev1.Container {
	t.Helper()
	containers := deployment(t).Spec.Template.Spec.Containers
	if len(containers) != 1 {
		t.Fatalf("%d containers", len(containers))
	}
	return &containers[0]
}

// replica is a running eventd.
type replica struct {
	account string
	command *exec.Cmd
	log     *bytes.Buffer // read when it has ended
	exited  chan struct{}
	config  *rest.Config // its address, without credentials
}

// start runs eventd as an account, with the flags of the Deployment but for what
// is of this machine. env is beside that of this process. It does not wait.
func start(t *testing.T, account string, env ...string) *replica {
	t.Helper()
	dir := t.TempDir()
	r := &replica{account: account, log: new(bytes.Buffer), exited: make(chan struct{})}
	r.command = exec.Command(binary, append(deployedFlags(t), localFlags(t, account, dir)...)...)
	r.command.Env = append(os.Environ(), env...)
	r.command.Stderr = r.log
	if err := r.command.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(r.exited)
		_ = r.command.Wait()
	}()
	t.Cleanup(func() {
		_ = r.command.Process.Kill()
		<-r.exited
		if t.Failed() {
			t.Logf("the log of %s:\n%s", account, r.log)
		}
	})
	return r
}

// deployedFlags are the flags of the Deployment, as a kubelet would give them to
// a Pod on this machine.
func deployedFlags(t *testing.T) (flags []string) {
	t.Helper()
	for _, flag := range container(t).Args {
		flags = append(flags, strings.NewReplacer("$(POD_IP)", "127.0.0.1", "$(POD_NAMESPACE)", metav1.NamespaceSystem).Replace(flag))
	}
	return flags
}

// localFlags are in the place of what a Pod has: its network, its token and its
// volumes. And nothing is waited for that can be helped: a write that is not
// allowed is given up at once, a repeat is written soon, and a Lease that is not
// watched is looked at every few minutes only.
func localFlags(t *testing.T, account, dir string) []string {
	t.Helper()
	kubeconfig, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	err := testenv.WriteKubeconfig(kubeconfig, cluster.ServiceAccount(t, metav1.NamespaceSystem, account))
	peer := cluster.ServiceAccount(t, metav1.NamespaceSystem, account, "eventd").BearerToken
	if err := errors.Join(err, os.WriteFile(token, []byte(peer), 0o600)); err != nil {
		t.Fatal(err)
	}
	return []string{
		"--kubeconfig=" + kubeconfig, "--peer-token-file=" + token,
		"--bind-address=127.0.0.1", "--secure-port=0", "--endpoint-kubeconfig=" + filepath.Join(dir, "endpoint"),
		"--leader-elect-resource-name=" + account,
		"--leader-elect-lease-duration=15m", "--leader-elect-renew-deadline=10m", "--leader-elect-retry-period=5m",
		"--shutdown-delay-duration=0s", "--forbidden-for=0s", "--series-heartbeat=10ms",
	}
}

// serves waits until r serves.
func (r *replica) serves(t *testing.T) error { return r.servesWithin(t, deadline) }

func (r *replica) servesWithin(t *testing.T, patience time.Duration) error {
	t.Helper()
	endpoint := ""
	for _, flag := range r.command.Args {
		if value, ok := strings.CutPrefix(flag, "--endpoint-kubeconfig="); ok {
			endpoint = value
		}
	}
	err := within(t, patience, func() error {
		select {
		case <-r.exited:
			return permanent{fmt.Errorf("eventd ended: %s", lastLine(r.log.String()))}
		default:
			if _, err := os.Stat(endpoint); err != nil {
				return errors.New("it does not serve")
			}
			return nil
		}
	})
	if err != nil {
		return err
	}
	r.config, err = clientcmd.BuildConfigFromFlags("", endpoint)
	return err
}

// terminate ends r as a kubelet does.
func (r *replica) terminate(t *testing.T) error {
	t.Helper()
	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil {
		return err
	}
	select {
	case <-r.exited:
	case <-time.After(deadline):
		return errors.New("eventd did not end")
	}
	if code := r.command.ProcessState.ExitCode(); code != 0 {
		return fmt.Errorf("eventd ended with %d: %s", code, lastLine(r.log.String()))
	}
	return nil
}

func lastLine(s string) string {
	s = strings.TrimSpace(s)
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// as is a client of r with the credentials of another configuration. It tries
// nothing twice by itself.
func (r *replica) as(t *testing.T, credentials *rest.Config) *http.Client {
	t.Helper()
	config := rest.CopyConfig(credentials)
	config.Host, config.CAData, config.ServerName = r.config.Host, r.config.CAData, r.config.ServerName
	config.CAFile = ""
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// anonymous is a client that neither says who it is nor verifies who answers.
func (r *replica) anonymous(t *testing.T) *http.Client {
	t.Helper()
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}
