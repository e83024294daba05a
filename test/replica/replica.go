// Package replica runs the built eventd in tests, as it runs in a cluster: as a
// process with the ServiceAccount and the rights of deploy/. Tests see its endpoint,
// its metrics, its log and its exit code.
//
//	func TestMain(m *testing.M) { os.Exit(replica.Runner(testenv.Runner(m)).Run()) }
//
//	func TestX(t *testing.T) {
//		cluster := testenv.Shared(t)
//		r := replica.Run(t, cluster, replica.Options{Flags: []string{"--leader-elect=false"}})
//		client := kubernetes.NewForConfigOrDie(r.Config(replica.Reporter(t, cluster, namespace)))
//		...
//		r.Terminate(t)
//	}
//
// Whoever starts a process ends it, except for those of Run, which end with the test.
package replica

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/metrics"
	"github.com/eventd/eventd/test/process"
	"github.com/eventd/eventd/test/testenv"
)

// Options of a process.
type Options struct {
	// Binary is the eventd to run; "" is the one that Runner has built.
	Binary string
	// Credentials lead to the apiserver.
	Credentials *rest.Config
	// PeerToken is the token that other replicas accept; "" is none.
	PeerToken string
	// Dir is for the files of the process: one that no other process uses, and that
	// exists until the process has ended.
	Dir string
	// Flags are added to the defaults: a free port on the loopback address, and logs in
	// JSON.
	Flags []string
	// Env is added to the environment of this process.
	Env []string
	// Group runs eventd in a process group of its own.
	Group bool
}

// Replica is a process of eventd. Its methods may be called from several
// goroutines.
type Replica struct {
	*process.Process
	dir      string
	endpoint *rest.Config // its address and CA; nil before it serves
}

// Launch starts a process, which the caller ends.
func Launch(o Options) (*Replica, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	r := &Replica{dir: o.Dir}
	_ = os.Remove(r.file("endpoint")) // of a process that was killed
	files := []string{"--kubeconfig=" + r.file("kubeconfig"), "--endpoint-kubeconfig=" + r.file("endpoint")}
	err := testenv.WriteKubeconfig(r.file("kubeconfig"), o.Credentials)
	if o.PeerToken != "" {
		// In a Pod, a projected volume has this token.
		files = append(files, "--peer-token-file="+r.file("token"))
		err = errors.Join(err, os.WriteFile(r.file("token"), []byte(o.PeerToken), 0o600))
	}
	if err != nil {
		return nil, err
	}
	if o.Binary == "" {
		o.Binary = binary
	}
	defaults := []string{"--bind-address=127.0.0.1", "--secure-port=0", "--logging-format=json"}
	cmd := exec.Command(o.Binary, slices.Concat(defaults, o.Flags, files)...)
	cmd.Env = append(os.Environ(), o.Env...)
	if o.Group {
		process.Group(cmd)
	}
	r.Process, err = process.Start("eventd", r.file("log"), cmd)
	return r, err
}

func (r *Replica) file(name string) string { return filepath.Join(r.dir, name) }

// WaitServing waits until the process serves.
func (r *Replica) WaitServing(ctx context.Context, timeout time.Duration) error {
	return await.Success(ctx, timeout, func() (err error) {
		if r.Ended() {
			return await.Permanent(r.Failure("ended"))
		}
		// The file appears complete.
		if _, err := os.Stat(r.file("endpoint")); err != nil {
			return errors.New("eventd does not serve")
		}
		r.endpoint, err = clientcmd.BuildConfigFromFlags("", r.file("endpoint"))
		return err
	})
}

// Start starts a process, which the caller ends, and waits until it serves.
func Start(ctx context.Context, o Options) (*Replica, error) {
	r, err := Launch(o)
	if err != nil {
		return nil, err
	}
	if err := r.WaitServing(ctx, await.Timeout); err != nil {
		r.Kill()
		return nil, err
	}
	return r, nil
}

// Run starts a process that ends with the test, and waits until it serves. Without
// credentials it has those of deploy/ in the cluster, and without a Dir one of the
// test.
func Run(t testing.TB, c *testenv.ControlPlane, o Options) *Replica {
	t.Helper()
	if o.Credentials == nil {
		o.Credentials = Deploy(t, c)
	}
	if o.Dir == "" {
		o.Dir = t.TempDir()
	}
	r, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	r.KillAfter(t)
	return r
}

// KillAfter kills the process when the test ends, and shows the end of its log if
// the test has failed.
func (r *Replica) KillAfter(t testing.TB) {
	t.Cleanup(func() {
		r.Kill()
		if t.Failed() {
			t.Logf("the log of eventd ends with:\n%s", r.Log(30))
		}
	})
}

// Config is that of a client of this process with the given credentials.
func (r *Replica) Config(credentials *rest.Config) *rest.Config {
	config := rest.CopyConfig(credentials)
	config.Host = r.endpoint.Host
	config.CAData, config.CAFile = r.endpoint.CAData, r.endpoint.CAFile
	config.ServerName = r.endpoint.ServerName
	return config
}

// Metrics reads /metrics with credentials that may do so.
func (r *Replica) Metrics(ctx context.Context, credentials *rest.Config) (metrics.Metrics, error) {
	return metrics.Read(ctx, r.Config(credentials))
}

// WantMetrics reads /metrics as the administrator.
func (r *Replica) WantMetrics(t testing.TB, c *testenv.ControlPlane) metrics.Metrics {
	t.Helper()
	ctx, cancel := await.Context(t)
	defer cancel()
	m, err := r.Metrics(ctx, c.Config())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// Terminate ends the process as a kubelet does. It must end in order.
func (r *Replica) Terminate(t testing.TB) {
	t.Helper()
	ctx, cancel := await.Context(t)
	defer cancel()
	if err := r.Stop(ctx); err != nil {
		t.Error(err)
	}
}

// Client is that of a test, with the given credentials.
func (r *Replica) Client(t testing.TB, credentials *rest.Config) *http.Client {
	t.Helper()
	client, err := rest.HTTPClientFor(r.Config(credentials))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.CloseIdleConnections)
	return client
}

// URL is a path of this process.
func (r *Replica) URL(path string) string { return r.endpoint.Host + path }

// Accounts are the occurrences of a process by outcome, and as "recorded" and
// "pending".
type Accounts map[string]int64

// Written is how many of them the process has counted in the apiserver.
func (a Accounts) Written() int64 { return a["created"] + a["merged"] + a["aggregated"] }

// FinalAccounts is the ledger that a process logs when it ends in order.
func (r *Replica) FinalAccounts() (Accounts, error) {
	for line := range strings.Lines(r.Stderr()) {
		var entry map[string]any
		if json.Unmarshal([]byte(line), &entry) != nil || entry["msg"] != "Final accounts" {
			continue
		}
		out := Accounts{}
		for name, value := range entry {
			if n, ok := value.(float64); ok {
				out[name] = int64(n)
			}
		}
		return out, nil
	}
	return nil, errors.New("eventd logged no final accounts")
}

// binary is the eventd under test, set while Runner runs.
var binary string

// Binary is the path of the eventd under test, while Runner runs.
func Binary() string { return binary }

// Runner returns a runner that builds eventd, runs m and removes what was built.
func Runner(m testenv.TestRunner) testenv.TestRunner { return runner{m} }

type runner struct{ m testenv.TestRunner }

func (r runner) Run() int {
	if !flag.Parsed() {
		flag.Parse()
	}
	if list := flag.Lookup("test.list"); list != nil && list.Value.String() != "" {
		return r.m.Run() // names only
	}
	dir, err := os.MkdirTemp("", "replica-")
	if err != nil {
		fmt.Fprintln(os.Stderr, "replica:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "eventd")
	build := exec.Command("go", "build", "-trimpath", "-o", binary, "github.com/eventd/eventd/cmd/eventd")
	build.Env = append(os.Environ(), "CGO_ENABLED=0") // as it is deployed
	build.Stderr = os.Stderr
	if err := build.Run(); err != nil {
		fmt.Fprintln(os.Stderr, "replica: building eventd:", err)
		return 1
	}
	return r.m.Run()
}
