//go:build linux

package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// node is one node of a cluster.
type node struct {
	cluster
	Number int
}

func (n node) name() string     { return fmt.Sprintf("node-%d", n.Number) }
func (n node) ip() string       { return fmt.Sprintf("10.99.0.%d", 10+n.Number) }
func (n node) podRange() string { return fmt.Sprintf("10.244.%d.0/24", n.Number) }

// file returns a file of this node.
func (n node) file(elements ...string) string {
	return n.path(append([]string{n.name()}, elements...)...)
}

// runNode is PID 1 of a node. It returns if the node cannot start, and else never.
func runNode(n node) error {
	if err := n.mountRoot(); err != nil {
		return fmt.Errorf("mounts of %s: %w", n.name(), err)
	}
	if err := n.setUpNetwork(); err != nil {
		return err
	}
	if err := n.configure(); err != nil {
		return err
	}
	containerd := daemon{"containerd", []string{n.part("deb/usr/bin/containerd"), "--config", "/etc/containerd/config.toml"}}
	running := map[int]daemon{}
	if err := n.start(running, containerd); err != nil {
		return err
	}
	if err := n.importImages(); err != nil {
		return err
	}
	for _, d := range []daemon{
		{"kubelet", []string{n.part("node"), "kubelet", "--config", "/etc/kubernetes/kubelet.yaml", "--kubeconfig", "/etc/kubernetes/kubelet.kubeconfig",
			"--hostname-override", n.name(), "--node-ip", n.ip(), "--node-labels", "topology.kubernetes.io/zone=zone-" + fmt.Sprint(n.Number)}},
		{"kube-proxy", []string{n.part("node"), "kube-proxy", "--config", "/etc/kubernetes/proxy.yaml"}},
		{"kube-router", []string{n.part("kube-router"), "--kubeconfig", "/etc/kubernetes/kube-router.kubeconfig", "--hostname-override", n.name(),
			"--run-router=false", "--run-firewall=true", "--run-service-proxy=false", "--enable-cni=false",
			"--service-cluster-ip-range", serviceRange, "--service-node-port-range=30000-32767", "--metrics-port=0", "--health-port=0"}},
	} {
		if err := n.start(running, d); err != nil {
			return err
		}
	}
	return n.reap(running)
}

// setUpNetwork sets what of the network the first stage cannot set from outside.
func (n node) setUpNetwork() error {
	if err := syscall.Sethostname([]byte(n.name())); err != nil {
		return err
	}
	commands := []string{
		"link set lo up",
		"addr add " + n.ip() + "/24 dev eth0",
		"link set eth0 up",
		"route add default via " + controlPlaneIP, // addresses of Services need a route before they are replaced
	}
	for number := 1; number <= n.Nodes; number++ {
		if other := (node{n.cluster, number}); number != n.Number {
			commands = append(commands, "route add "+other.podRange()+" via "+other.ip())
		}
	}
	if err := ip(commands...); err != nil {
		return err
	}
	for _, name := range []string{"ipv4/ip_forward", "bridge/bridge-nf-call-iptables"} { // of this network namespace
		if err := os.WriteFile("/proc/sys/net/"+name, []byte("1"), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// daemon is a process that is started again when it ends.
type daemon struct {
	name string
	args []string
}

// restartDelay is how long a daemon is not started after its end.
const restartDelay = time.Second

func startDaemon(log string, environment []string, args ...string) (*os.Process, error) {
	file, err := os.OpenFile(log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	return os.StartProcess(args[0], args, &os.ProcAttr{Env: environment, Files: []*os.File{null, file, file}, Sys: &syscall.SysProcAttr{Setsid: true}})
}

func (n node) start(running map[int]daemon, d daemon) error {
	process, err := startDaemon(n.path("log", n.name()+"-"+d.name), n.environment(), d.args...)
	if err != nil {
		return err
	}
	running[process.Pid] = d
	return process.Release()
}

// environment has the programs and libraries of the Debian packages.
func (n node) environment() []string {
	deb := n.part("deb")
	libraries, _ := filepath.Glob(deb + "/usr/lib/*-linux-gnu")
	extensions, _ := filepath.Glob(deb + "/usr/lib/*-linux-gnu/xtables")
	return []string{
		fmt.Sprintf("PATH=%[1]s/usr/sbin:%[1]s/usr/bin:/usr/sbin:/usr/bin:/sbin:/bin", deb),
		"LD_LIBRARY_PATH=" + strings.Join(libraries, ":"),
		"XTABLES_LIBDIR=" + strings.Join(extensions, ":"),
		"HOME=/root",
	}
}

// importImages gives the images of all Pods to containerd.
func (n node) importImages() error {
	const socket = "/run/containerd/containerd.sock"
	deadline := time.Now().Add(time.Minute)
	for {
		if _, err := os.Stat(socket); err == nil {
			break
		} else if time.Now().After(deadline) {
			return fmt.Errorf("containerd has not started: %w", err)
		}
		time.Sleep(10 * time.Millisecond)
	}
	images, err := filepath.Glob(n.part("images", "*.tar"))
	if err != nil {
		return err
	}
	for number := range n.Images {
		images = append(images, n.path(fmt.Sprintf("image-%d.tar", number)))
	}
	for _, image := range images {
		command := exec.Command(n.part("deb/usr/bin/ctr"), "--address", socket, "--namespace", "k8s.io", "images", "import", "--digests", image)
		if out, err := command.CombinedOutput(); err != nil {
			return fmt.Errorf("importing %s: %w: %s", image, err, out)
		}
	}
	return nil
}

// reap waits for all processes that end, as PID 1 has to, and starts daemons again.
func (n node) reap(running map[int]daemon) error {
	for {
		pid, err := syscall.Wait4(-1, nil, 0, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil {
			return err // no daemon is left
		}
		if d, ok := running[pid]; ok {
			delete(running, pid)
			fmt.Println(time.Now().Format(time.RFC3339), d.name, "has ended")
			time.Sleep(restartDelay)
			if err := n.start(running, d); err != nil {
				return err
			}
		}
	}
}
