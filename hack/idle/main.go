// Command idle measures an idle leader and an idle standby: it runs both against a
// local control plane, with the rights of deploy/, for a while. Then it measures
// what idle clients of the leader cost.
//
//	make static && go run ./hack/idle
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/replica"
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
	if err := replica.Grant(ctx, cluster, "deploy"); err != nil {
		return err
	}
	var replicas []*eventd
	for _, role := range []string{"leader", "standby"} {
		r, err := start(ctx, cluster, filepath.Join(dir, role), role)
		if r != nil {
			defer r.end()
		}
		if err != nil {
			return fmt.Errorf("starting the %s: %w", role, err)
		}
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
func watch(ctx context.Context, replicas []*eventd) (rows string, err error) {
	if err := await.Sleep(ctx, *settle); err != nil {
		return "", err
	}
	before := make([]usage, len(replicas))
	for i, r := range replicas {
		if before[i], err = r.usage(ctx); err != nil {
			return "", err
		}
	}
	if err := await.Sleep(ctx, *measure); err != nil {
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

// eventd is a running eventd.
type eventd struct {
	*replica.Replica
	role  string
	admin *rest.Config
}

// start returns when the replica is ready, which it is when it knows the leader.
func start(ctx context.Context, cluster *testenv.ControlPlane, dir, role string) (*eventd, error) {
	config, err := cluster.TokenConfig(ctx, metav1.NamespaceSystem, "eventd")
	if err != nil {
		return nil, err
	}
	peer, err := cluster.TokenConfig(ctx, metav1.NamespaceSystem, "eventd", "eventd")
	if err != nil {
		return nil, err
	}
	r, err := replica.Start(ctx, replica.Options{Binary: *binary, Credentials: config, PeerToken: peer.BearerToken, Dir: dir, Flags: []string{"--role=intake"}})
	if err != nil {
		return nil, err
	}
	e := &eventd{r, role, r.Config(cluster.Config())}
	client, err := kubernetes.NewForConfig(e.admin)
	if err != nil {
		return e, err
	}
	return e, await.Success(ctx, time.Minute, func() error {
		return client.RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
	})
}

func (e *eventd) end() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := e.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "idle:", err)
	}
}
