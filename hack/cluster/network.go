//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	controlPlaneIP = "10.99.0.1"
	apiServer      = controlPlaneIP + ":6443"
	serviceRange   = "10.0.0.0/24" // that of test/controlplane
	clusterDNS     = "10.0.0.10"
)

// network is the first stage: the control plane, in a network with all nodes.
type network struct {
	cluster
	mu    sync.Mutex
	nodes map[string]*exec.Cmd // those that are switched on
	// controlPlane is the process of the kube-apiserver and of etcd.
	controlPlane *exec.Cmd
}

// runNetwork is PID 1 of all of the cluster. It returns if that cannot start, and else never.
func runNetwork(n node) error {
	w := &network{cluster: n.cluster, nodes: map[string]*exec.Cmd{}}
	syscall.CloseOnExec(3) // the listener of up
	if err := w.setUp(); err != nil {
		return err
	}
	if err := w.startControlPlane(); err != nil {
		return err
	}
	fmt.Println("the kube-apiserver is ready")
	if err := w.startControllers(); err != nil {
		return err
	}
	for number := 1; number <= w.Nodes; number++ {
		if err := w.switchOn(node{w.cluster, number}); err != nil {
			return err
		}
	}
	if err := w.exposeAPIServer(); err != nil {
		return err
	}
	if err := w.addons(); err != nil {
		return err
	}
	return w.serveControl(func() { fmt.Println("ready") })
}

// setUp makes the network of the control plane, and a bridge for the nodes.
func (w *network) setUp() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return err
	}
	commands := []string{
		"link set lo up",
		"link add nodes type bridge",
		"addr add " + controlPlaneIP + "/24 dev nodes",
		"link set nodes up",
	}
	for number := 1; number <= w.Nodes; number++ {
		n := node{w.cluster, number}
		commands = append(commands, "route add "+n.podRange()+" via "+n.ip())
	}
	return ip(commands...)
}

// ip runs commands of ip(8).
func ip(commands ...string) error {
	for _, command := range commands {
		if out, err := exec.Command("ip", strings.Fields(command)...).CombinedOutput(); err != nil {
			return fmt.Errorf("ip %s: %w: %s", command, err, out)
		}
	}
	return nil
}

// startControlPlane starts the kube-apiserver and etcd, returns when they are ready, and restarts them when they end.
func (w *network) startControlPlane() error {
	args := []string{"--data-dir", w.path("control-plane"), "--address", controlPlaneIP, "--port", "6443",
		"--san", controlPlaneIP, "--san", "10.0.0.1", "--san", "kubernetes.default.svc.cluster.local",
		"--apiserver-arg=--advertise-address=" + controlPlaneIP, "--apiserver-arg=--endpoint-reconciler-type=lease"}
	for number := 1; number <= w.Nodes; number++ {
		args = append(args, "--node", node{w.cluster, number}.name())
	}
	ready := make(chan error, 1)
	go func() {
		for started := false; ; time.Sleep(restartDelay) {
			now, err := w.runControlPlane(args, ready)
			if started = started || now; !started {
				ready <- err
				return
			}
		}
	}()
	return <-ready
}

// runControlPlane returns when the control plane has ended, and whether it was ready before.
func (w *network) runControlPlane(args []string, ready chan<- error) (started bool, err error) {
	command := exec.Command(w.part("controlplane"), args...)
	log, err := os.OpenFile(w.path("log", "control-plane"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return false, err
	}
	defer log.Close()
	command.Stderr = log
	out, err := command.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := command.Start(); err != nil {
		return false, err
	}
	w.mu.Lock()
	w.controlPlane = command
	w.mu.Unlock()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if strings.HasPrefix(lines.Text(), "ready ") {
			started = true
			select {
			case ready <- nil:
			default:
			}
		}
	}
	return started, errors.Join(errors.New("the control plane has ended, see "+log.Name()), command.Wait())
}

// startControllers starts the controller manager and the scheduler.
func (w *network) startControllers() error {
	pki := w.path("control-plane", "pki")
	for _, command := range [][]string{
		{"kube-controller-manager", "controller-manager", "--use-service-account-credentials=true",
			"--service-account-private-key-file", pki + "/sa.key", "--root-ca-file", pki + "/ca.crt",
			"--cluster-signing-cert-file", pki + "/ca.crt", "--cluster-signing-key-file", pki + "/ca.key",
			"--service-cluster-ip-range", serviceRange},
		{"kube-scheduler", "scheduler"},
	} {
		kubeconfig := w.path(command[1] + ".kubeconfig")
		if err := os.WriteFile(kubeconfig, []byte(w.kubeconfig(apiServer, command[1])), 0o600); err != nil {
			return err
		}
		args := append([]string{w.part("node"), command[0], "--leader-elect=false", "--kubeconfig", kubeconfig,
			"--authentication-kubeconfig", kubeconfig, "--authorization-kubeconfig", kubeconfig}, command[2:]...)
		go func() {
			for {
				d, err := startDaemon(w.path("log", command[0]), os.Environ(), args...)
				if err == nil {
					_, _ = d.Wait()
				}
				time.Sleep(restartDelay)
			}
		}()
	}
	return nil
}

// switchOn starts a node.
func (w *network) switchOn(n node) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.nodes[n.name()] != nil {
		return nil
	}
	waits, proceed, err := os.Pipe()
	if err != nil {
		return err
	}
	defer proceed.Close()
	defer waits.Close()
	log, err := os.OpenFile(w.path("log", n.name()), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	command := exec.Command("/proc/self/exe", stage(cgroupStage, n)...)
	command.ExtraFiles, command.Stdout, command.Stderr = []*os.File{waits}, log, log
	command.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	if err := command.Start(); err != nil {
		return err
	}
	w.nodes[n.name()] = command
	go func() {
		_ = command.Wait()
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.nodes[n.name()] == command {
			delete(w.nodes, n.name())
			fmt.Println(n.name() + " has ended, see " + w.path("log", n.name()))
		}
	}()
	_ = ip("link del " + n.name()) // of a node that was switched off a moment ago
	if err := ip(fmt.Sprintf("link add %s type veth peer name eth0 netns %d", n.name(), command.Process.Pid),
		fmt.Sprintf("link set %s master nodes up", n.name())); err != nil {
		return err
	}
	_, err = proceed.Write([]byte{1})
	return err
}

// switchOff ends all processes of a node at once, as a power failure does, and returns when they have ended. Until then the
// node cannot be switched on, since it would have the cgroups that are removed.
func (w *network) switchOff(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	command := w.nodes[name]
	if command == nil {
		return fmt.Errorf("%s is off", name)
	}
	delete(w.nodes, name)
	if err := command.Process.Kill(); err != nil {
		return err
	}
	return errors.Join(awaitExit(command.Process.Pid), w.removeCgroups(name))
}

// awaitExit waits for the end of a process that another goroutine waits for.
func awaitExit(pid int) error {
	deadline := time.Now().Add(time.Minute)
	for syscall.Kill(pid, 0) == nil {
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d has not ended", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil
}

// exposeAPIServer forwards connections to the listener of "up", and writes the kubeconfig for there.
func (w *network) exposeAPIServer() error {
	listener, err := net.FileListener(os.NewFile(3, "listener"))
	if err != nil {
		return err
	}
	address, err := os.ReadFile(w.path("address"))
	if err != nil {
		return err
	}
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			go forward(client)
		}
	}()
	return os.WriteFile(w.path("admin.kubeconfig"), []byte(w.kubeconfig(string(address), "admin")), 0o600)
}

func forward(client net.Conn) {
	defer client.Close()
	server, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", apiServer)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		_, _ = io.Copy(server, client)
		_ = server.(*net.TCPConn).CloseWrite()
	}()
	_, _ = io.Copy(client, server)
}

// addons applies what clusters have, and waits for it.
func (w *network) addons() error {
	fmt.Println("the nodes start")
	if err := w.kubectl("apply", "-f", w.part("coredns.yaml")); err != nil {
		return err
	}
	for number := 1; number <= w.Nodes; number++ {
		if err := w.kubectl("wait", "--for=create", "--timeout=120s", "node/"+node{w.cluster, number}.name()); err != nil {
			return err
		}
	}
	if err := w.kubectl("wait", "--for=condition=Ready", "--timeout=120s", "nodes", "--all"); err != nil {
		return err
	}
	fmt.Println("the nodes are ready")
	return w.kubectl("-n", "kube-system", "rollout", "status", "--timeout=120s", "daemonset/coredns")
}

func (w *network) kubectl(args ...string) error {
	command := exec.Command(w.part("kubectl"), append([]string{"--kubeconfig", w.path("control-plane", "admin.kubeconfig")}, args...)...)
	command.Env = append(os.Environ(), "KUBECACHEDIR="+w.path("kube-cache"))
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, out)
	}
	return nil
}
