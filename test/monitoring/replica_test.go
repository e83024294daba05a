package monitoring

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	built "github.com/eventd/eventd/test/replica"
	"github.com/eventd/eventd/test/testenv"
)

// replica is a running eventd.
type replica struct {
	t       *testing.T
	command *exec.Cmd
	stderr  *bytes.Buffer // to be read after exited
	exited  chan struct{}
	config  *rest.Config // its address, without credentials
}

// startReplica starts an eventd as the ServiceAccount of deploy/, with leader
// election, and waits until it serves.
func startReplica(t *testing.T, c *testenv.ControlPlane) *replica {
	t.Helper()
	dir := t.TempDir()
	kubeconfig, endpoint, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "endpoint"), filepath.Join(dir, "token")
	if err := testenv.WriteKubeconfig(kubeconfig, c.ServiceAccount(t, "kube-system", "eventd")); err != nil {
		t.Fatal(err)
	}
	peer := c.ServiceAccount(t, "kube-system", "eventd", "eventd")
	if err := os.WriteFile(token, []byte(peer.BearerToken), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replica{t: t, stderr: new(bytes.Buffer), exited: make(chan struct{})}
	r.command = exec.Command(built.Binary(), "--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", "--secure-port=0",
		"--endpoint-kubeconfig="+endpoint, "--peer-token-file="+token)
	r.command.Stderr = r.stderr
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
			t.Logf("eventd's log:\n%s", r.stderr)
		}
	})
	waitFor(t, "eventd to serve", func() (string, error) {
		select {
		case <-r.exited:
			return "", errors.New("eventd has ended:\n" + r.stderr.String())
		default:
		}
		if _, err := os.Stat(endpoint); err != nil {
			return err.Error(), nil
		}
		return "", nil
	})
	var err error
	if r.config, err = clientcmd.BuildConfigFromFlags("", endpoint); err != nil {
		t.Fatal(err)
	}
	return r
}

// applyDeploy gives the ServiceAccount of eventd its rights, and waits until it
// has them.
func applyDeploy(t *testing.T, c *testenv.ControlPlane) {
	t.Helper()
	if err := c.Apply(t.Context(), "../../deploy"); err != nil {
		t.Fatal(err)
	}
	waitAllowed(t, c, "system:serviceaccount:kube-system:eventd", authorizationv1.SubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{
			Verb: "get", Resource: "configmaps", Namespace: "kube-system", Name: "extension-apiserver-authentication",
		},
	})
}

// address is host and port.
func (r *replica) address() string { return strings.TrimPrefix(r.config.Host, "https://") }

// as is a client of this replica that has the credentials of another
// configuration.
func (r *replica) as(credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host, config.TLSClientConfig.ServerName = r.config.Host, r.config.ServerName
	config.CAData, config.CAFile = r.config.CAData, r.config.CAFile
	return config
}

// metrics reads /metrics.
func (r *replica) metrics(credentials *rest.Config) ([]byte, error) {
	client, err := kubernetes.NewForConfig(r.as(credentials))
	if err != nil {
		return nil, err
	}
	return client.RESTClient().Get().AbsPath("/metrics").DoRaw(r.t.Context())
}

// terminate ends the replica in order.
func (r *replica) terminate() {
	r.t.Helper()
	if err := r.command.Process.Signal(syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	select {
	case <-r.exited:
	case <-time.After(deadline):
		r.t.Fatal("eventd did not end")
	}
	if code := r.command.ProcessState.ExitCode(); code != 0 {
		r.t.Errorf("eventd ended with %d", code)
	}
}

// waitAllowed waits until RBAC has taken notice of a right.
func waitAllowed(t *testing.T, c *testenv.ControlPlane, user string, spec authorizationv1.SubjectAccessReviewSpec) {
	t.Helper()
	client, err := kubernetes.NewForConfig(c.Config())
	if err != nil {
		t.Fatal(err)
	}
	spec.User = user
	waitFor(t, "the rights of "+user, func() (string, error) {
		review, err := client.AuthorizationV1().SubjectAccessReviews().Create(t.Context(),
			&authorizationv1.SubjectAccessReview{Spec: spec}, metav1.CreateOptions{})
		if err != nil || review.Status.Allowed {
			return "", err
		}
		return "not allowed", nil
	})
}
