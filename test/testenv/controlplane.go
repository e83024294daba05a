package testenv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/manifests"
	"github.com/eventd/eventd/test/process"
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

const (
	// startTimeout is above the control plane's own limit, so that its own error is
	// the one that is reported.
	startTimeout = 4 * time.Minute
	// stopTimeout is above the control plane's own limit of twice 5 seconds.
	stopTimeout = 20 * time.Second
)

// run is one process of the control plane's binary.
type run struct {
	*process.Process
	stdin io.Closer
	ready chan string // the first line of stdout
}

// startRun starts binary with a pipe as stdin, which closes when this process ends
// in whatever way.
func startRun(binary string, args []string) (*run, error) {
	cmd := exec.Command(binary, args...)
	r := &run{ready: make(chan string, 1)}
	process.Group(cmd)     // it ends with its stdin
	if testing.Testing() { // it saves a fifth of the CPU of a start, and is not for what is measured beside it
		cmd.Env = append(os.Environ(), "GOGC=400")
	}
	var err error
	if r.stdin, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if r.Process, err = process.Start("control plane", "", cmd); err != nil {
		return nil, err
	}
	go func() { // until the line is there, or the process has ended
		if line, err := bufio.NewReader(stdout).ReadString('\n'); err == nil {
			r.ready <- strings.TrimSuffix(line, "\n")
		}
	}()
	return r, nil
}

// waitReady returns the server's URL and the path of its kubeconfig.
func (r *run) waitReady(ctx context.Context) (url, kubeconfig string, err error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	select {
	case line := <-r.ready:
		fields := strings.SplitN(line, " ", 3)
		if len(fields) != 3 || fields[0] != "ready" {
			return "", "", fmt.Errorf("not a ready line: %q", line)
		}
		return fields[1], fields[2], nil
	case <-r.Done():
		return "", "", r.Failure("ended before it was ready")
	case <-ctx.Done():
		return "", "", r.Failure("is not ready: " + context.Cause(ctx).Error())
	}
}

// terminate ends the process and leaves its data directory.
func (r *run) terminate() error { return r.end(r.Stop) }

// abandon ends the process in the way in which the end of this one would: it
// removes its data directory.
func (r *run) abandon() error { return errors.Join(r.stdin.Close(), r.end(r.End)) }

func (r *run) end(how func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	defer r.stdin.Close()
	return how(ctx)
}

// discard ends a process that did not become ready, for a reason that has been
// reported.
func (r *run) discard() {
	r.Kill()
	_ = r.stdin.Close()
}
