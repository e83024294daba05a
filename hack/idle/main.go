// Command idle measures what a leader and a standby take that have nothing to
// do: it runs both against a local control plane, with the rights of deploy/,
// for a while; and then what clients take that are connected to the leader and do
// nothing, either.
//
//	make static && go run ./hack/idle
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

var (
	binary  = flag.String("eventd", "bin/eventd-static", "the `file` to run")
	settle  = flag.Duration("settle", 10*time.Second, "how long to wait before")
	measure = flag.Duration("for", time.Minute, "how long to measure")
	clients = flag.Int("clients", 1000, "how many clients connect to the leader in the end")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	file, err := os.Stat(*binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "idle-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	cluster, err := testenv.Start(ctx, testenv.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, cluster.Stop()) }()
	if err := cluster.Apply(ctx, "deploy"); err != nil {
		return err
	}
	var replicas []*replica
	for _, role := range []string{"leader", "standby"} {
		r, err := start(ctx, cluster, filepath.Join(dir, role))
		if r != nil {
			defer r.end()
		}
		if err != nil {
			return fmt.Errorf("starting the %s: %w", role, err)
		}
		r.role = role
		replicas = append(replicas, r)
	}
	rows, err := watch(ctx, replicas)
	if err != nil {
		return err
	}
	fmt.Printf("| | resident, MiB | without the binary, MiB | of a core, %% |\n|---|--:|--:|--:|\n%s", rows)
	fmt.Printf("\nThe binary has %d MiB.\n", file.Size()>>20)
	if *clients == 0 {
		return nil
	}
	each, err := replicas[0].connect(ctx, *clients)
	if err != nil {
		return err
	}
	fmt.Printf("A client that is connected takes %.0f KiB of the leader, %d of them %.0f MiB.\n", each/(1<<10), *clients, each*float64(*clients)/(1<<20))
	return nil
}

// watch measures all replicas at once, and returns the rows of a table.
func watch(ctx context.Context, replicas []*replica) (rows string, err error) {
	if err := wait(ctx, *settle); err != nil {
		return "", err
	}
	before := make([]usage, len(replicas))
	for i, r := range replicas {
		if before[i], err = r.usage(ctx); err != nil {
			return "", err
		}
	}
	if err := wait(ctx, *measure); err != nil {
		return "", err
	}
	for i, r := range replicas {
		after, err := r.usage(ctx)
		if err != nil {
			return "", err
		}
		if leads := r.role == "leader"; after.leading != leads || before[i].leading != leads {
			return "", fmt.Errorf("the %s did not stay what it was", r.role)
		}
		percent := 100 * (after.cpu - before[i].cpu) / after.at.Sub(before[i].at).Seconds()
		rows += fmt.Sprintf("| %s | %.0f | %s | %.2f |\n", r.role, after.resident/(1<<20), after.own, percent)
	}
	return rows, nil
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// replica is a running eventd.
type replica struct {
	role    string
	command *exec.Cmd
	exited  chan struct{}
	config  *rest.Config     // the administrator's
	client  *rest.RESTClient // made of it
}

// start returns when the replica is ready, which it is when it knows the leader.
func start(ctx context.Context, cluster *testenv.ControlPlane, dir string) (*replica, error) {
	flags, err := prepare(ctx, cluster, dir)
	if err != nil {
		return nil, err
	}
	r := &replica{command: exec.Command(*binary, flags...), exited: make(chan struct{})}
	if err := r.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(r.exited)
		_ = r.command.Wait()
	}()
	return r, r.waitReady(ctx, cluster, filepath.Join(dir, "endpoint"))
}

// prepare writes what a replica reads, and returns its flags.
func prepare(ctx context.Context, cluster *testenv.ControlPlane, dir string) (flags []string, err error) {
	const namespace, account = metav1.NamespaceSystem, "eventd"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	config, err := cluster.TokenConfig(ctx, namespace, account)
	if err != nil {
		return nil, err
	}
	peer, err := cluster.TokenConfig(ctx, namespace, account, "eventd")
	if err != nil {
		return nil, err
	}
	kubeconfig, token := filepath.Join(dir, "kubeconfig"), filepath.Join(dir, "token")
	err = errors.Join(testenv.WriteKubeconfig(kubeconfig, config), os.WriteFile(token, []byte(peer.BearerToken), 0o600))
	return []string{
		"--kubeconfig=" + kubeconfig, "--peer-token-file=" + token,
		"--bind-address=127.0.0.1", "--secure-port=0", "--endpoint-kubeconfig=" + filepath.Join(dir, "endpoint"),
	}, err
}

func (r *replica) waitReady(ctx context.Context, cluster *testenv.ControlPlane, endpoint string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		select {
		case <-r.exited:
			return errors.New("it ended")
		default:
		}
		if r.client == nil {
			r.config, r.client = clientOf(cluster, endpoint)
		}
		if r.client != nil && r.client.Get().AbsPath("/readyz").Do(ctx).Error() == nil {
			return nil
		}
		if err := wait(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
}

// clientOf returns nil while there is no endpoint.
func clientOf(cluster *testenv.ControlPlane, endpoint string) (*rest.Config, *rest.RESTClient) {
	at, err := clientcmd.BuildConfigFromFlags("", endpoint)
	if err != nil {
		return nil, nil
	}
	config := cluster.Config()
	config.Host, config.CAFile, config.CAData, config.ServerName = at.Host, "", at.CAData, at.ServerName
	client, err := rest.UnversionedRESTClientFor(withCodec(config))
	if err != nil {
		return nil, nil
	}
	return config, client
}

func (r *replica) end() {
	_ = r.command.Process.Signal(syscall.SIGTERM)
	<-r.exited
}
