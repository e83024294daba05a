package testenv

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/manifests"
)

// Options of a control plane. The zero value is what Main uses.
type Options struct {
	// Audit keeps a log of requests, for Audited.
	Audit bool
	// APIServerArgs are further flags of the kube-apiserver, such as "--v=2".
	APIServerArgs []string
}

// ControlPlane is a control plane that belongs to this process. Its address,
// certificates and objects stay the same from Start to Stop, over any number of
// Down and Up.
type ControlPlane struct {
	opts    Options
	binary  string
	dataDir string

	kubeconfig string
	config     *rest.Config

	mu   sync.Mutex
	run  *run // nil while down
	port int  // on 127.0.0.1; 0 before the first start, which takes a free one
}

// Start starts a control plane and returns when it is ready. ctx bounds the
// start, the building of the binary included. The control plane ends with Stop,
// which the caller must call, or with this process.
func Start(ctx context.Context, opts Options) (*ControlPlane, error) {
	binary, err := Binary(ctx)
	if err != nil {
		return nil, err
	}
	// Made here rather than by the control plane, so that it is removed even if the
	// control plane is killed.
	dataDir, err := os.MkdirTemp("", "testenv-")
	if err != nil {
		return nil, err
	}
	c := &ControlPlane{opts: opts, binary: binary, dataDir: dataDir}
	if opts.Audit {
		args, err := c.auditArgs()
		if err != nil {
			return nil, errors.Join(err, c.Stop())
		}
		c.opts.APIServerArgs = append(args, opts.APIServerArgs...)
	}
	if err := c.Up(ctx); err != nil {
		return nil, errors.Join(err, c.Stop())
	}
	return c, nil
}

// StartForTest starts a control plane for one test, which Stop ends with it.
func StartForTest(t testing.TB, opts Options) *ControlPlane {
	t.Helper()
	SkipIfShort(t)
	c, err := Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// Up starts the control plane again after Down, or after its process was
// killed. It does nothing to one that is up.
func (c *ControlPlane) Up(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil && !c.run.Ended() {
		return nil
	}
	args := []string{"--exit-on-stdin-eof", "--data-dir=" + c.dataDir, "--port=" + strconv.Itoa(c.port)}
	for _, arg := range c.opts.APIServerArgs {
		args = append(args, "--apiserver-arg="+arg)
	}
	r, err := startRun(c.binary, args)
	if err != nil {
		return err
	}
	server, kubeconfig, err := r.waitReady(ctx)
	if err != nil {
		r.discard()
		return err
	}
	c.run = r
	if c.config != nil {
		return nil // the same address, the same credentials
	}
	return c.adopt(server, kubeconfig)
}

// adopt keeps the address and the credentials of the first start.
func (c *ControlPlane) adopt(server, kubeconfig string) error {
	address, err := url.Parse(server)
	if err != nil {
		return err
	}
	if c.port, err = strconv.Atoi(address.Port()); err != nil {
		return fmt.Errorf("server URL %q: %w", server, err)
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	c.kubeconfig, c.config = kubeconfig, unlimited(config)
	return nil
}

// unlimited removes the client's own rate limit, which a test would measure.
func unlimited(config *rest.Config) *rest.Config {
	config.QPS = -1
	return config
}

// Down ends the process in order and keeps everything for Up. It does nothing to
// one that is down.
func (c *ControlPlane) Down() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.end((*run).terminate)
}

// Stop ends the control plane for good, and removes its data directory. It may be
// called again. It takes about a second, and is bounded.
func (c *ControlPlane) Stop() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return errors.Join(c.end((*run).abandon), os.RemoveAll(c.dataDir))
}

// end ends the process, if one runs.
func (c *ControlPlane) end(how func(*run) error) error {
	r := c.run
	if r == nil {
		return nil
	}
	c.run = nil
	if r.Ended() { // a test has killed it
		_ = r.stdin.Close()
		return nil
	}
	return how(r)
}

// Signal sends a signal to the control plane's process. After SIGKILL it has ended by
// the time that Signal returns.
func (c *ControlPlane) Signal(signal syscall.Signal) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return errors.New("control plane is down")
	}
	err := c.run.Send(signal)
	if err == nil && signal == syscall.SIGKILL {
		<-c.run.Done()
	}
	return err
}

// PID is that of the control plane's process, 0 while it is down.
func (c *ControlPlane) PID() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run == nil {
		return 0
	}
	return c.run.PID()
}

// check returns an error if the process should be running and is not.
func (c *ControlPlane) check() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.run != nil && c.run.Ended() {
		return c.run.Failure("ended by itself")
	}
	return nil
}

// Config returns the configuration of a client that may do everything, without
// a rate limit. It is a copy, the caller's to change.
func (c *ControlPlane) Config() *rest.Config { return rest.CopyConfig(c.config) }

// Kubeconfig returns the path of the administrator's kubeconfig. It exists from
// Start to Stop.
func (c *ControlPlane) Kubeconfig() string { return c.kubeconfig }

// client returns an administrator's client.
func (c *ControlPlane) client() (kubernetes.Interface, error) {
	return kubernetes.NewForConfig(c.Config())
}

// Apply applies manifests, as package manifests does, with all rights.
func (c *ControlPlane) Apply(ctx context.Context, path string) error {
	applier, err := manifests.New(c.Config(), "testenv")
	if err != nil {
		return err
	}
	return applier.Apply(ctx, path)
}
