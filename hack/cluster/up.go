//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const namespaces = syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWUTS | syscall.CLONE_NEWIPC

func up(args []string) error {
	c, err := parse("up", args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("namespaces, cgroups and mounts need root; make run needs none")
	}
	lock, err := acquire(c)
	if err != nil {
		return err
	}
	defer lock.Close()
	defer func() { _ = lock.Truncate(0) }() // the PID may be another process's later
	if err := c.clean(); err != nil {
		return fmt.Errorf("removing what an earlier cluster has left: %w", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if c.UntilEOF {
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			stop()
		}()
	}
	if err := c.serve(ctx); err != nil { // its logs stay until the next start
		return errors.Join(err, c.removeCgroups())
	}
	return c.clean()
}

func parse(command string, args []string) (c cluster, err error) {
	flags := flag.NewFlagSet("cluster "+command, flag.ContinueOnError)
	flags.StringVar(&c.Dir, "dir", ".cache/cluster", "`folder` for the files of this run; it is removed at the end")
	flags.StringVar(&c.Parts, "parts", "", "`folder` that hack/cluster/build.sh prints")
	flags.IntVar(&c.Nodes, "nodes", 2, "`number` of nodes, at most 9")
	flags.StringVar(&c.Disk, "disk", "4g", "`size` of the disk of each node, which is in memory as far as it is filled")
	flags.StringVar(&c.Memory, "memory", "", "`KiB` of memory that each kubelet sees; all of the machine if empty")
	flags.StringVar(&c.Run, "run", "", "`command` of a shell to run when the cluster is ready, with its KUBECONFIG")
	flags.BoolVar(&c.UntilEOF, "exit-on-stdin-eof", false, "end when stdin is closed, so that the cluster ends with its parent")
	flags.Func("image", "`archive` of an image for Pods; may be repeated", func(file string) error {
		file, err := filepath.Abs(file)
		c.Images = append(c.Images, file)
		return err
	})
	if err := flags.Parse(args); err != nil {
		return c, err
	}
	if flags.NArg() > 0 || c.Nodes < 1 || c.Nodes > 9 {
		return c, errors.New("-nodes is from 1 to 9, and there is no further argument")
	}
	for _, dir := range []*string{&c.Dir, &c.Parts} {
		if *dir, err = filepath.Abs(*dir); err != nil {
			return c, err
		}
	}
	// The socket of "cluster node" is in it, and it is an option of a mount.
	if len(c.path(controlSocket)) > maxSocketPath || strings.ContainsAny(c.Dir, `,:\`) {
		return c, fmt.Errorf("-dir is too long, or has one of %s: %s", `,:\`, c.Dir)
	}
	return c, os.MkdirAll(filepath.Dir(c.Dir), 0o755)
}

// acquire returns the locked file that has the PID of this process. The lock ends with the process, however that ends.
func acquire(c cluster) (*os.File, error) {
	file, err := os.OpenFile(c.Dir+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		file.Close()
		return nil, fmt.Errorf("a cluster runs in %s already; make cluster-down ends it", c.Dir)
	}
	_ = file.Truncate(0)
	_, err = file.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	return file, err
}

// down ends the cluster of another process, and removes what is left if that was killed.
func down(args []string) error {
	c, err := parse("down", args)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(c.Dir+".lock", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	said, told := "no cluster runs", 0
	for syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
		// Who has the lock is a cluster with its PID in the file, or has not written that yet, or is another "down".
		owner := make([]byte, 16)
		n, _ := file.ReadAt(owner, 0)
		if pid, err := strconv.Atoi(string(owner[:n])); err == nil && pid > 1 && pid != told && syscall.Kill(pid, syscall.SIGTERM) == nil {
			said, told = "the cluster has ended", pid
		}
		time.Sleep(100 * time.Millisecond)
	}
	if err := file.Truncate(0); err != nil {
		return err
	}
	if err := c.clean(); err != nil {
		return err
	}
	fmt.Println(said + ", and nothing is left of one in " + c.Dir)
	return nil
}

// controlSocket is the socket of "cluster node". The path of one is limited.
const (
	controlSocket = "control"
	maxSocketPath = 107
)

// marker is the file that says that a folder is of a cluster.
const marker = "eventd-cluster"

// clean removes all that a cluster leaves outside of its namespaces. A folder with other things stays, with an error.
func (c cluster) clean() error {
	entries, err := os.ReadDir(c.Dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return c.removeCgroups()
	case err != nil:
		return err
	case len(entries) > 0 && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == marker }):
		return fmt.Errorf("%s is no folder of a cluster, and not empty", c.Dir)
	}
	err = c.removeCgroups()
	for _, e := range entries {
		if e.Name() != marker { // the last, if this is killed
			err = errors.Join(err, afterTheKilled(syscall.ENOTEMPTY, func() error { return os.RemoveAll(c.path(e.Name())) }))
		}
	}
	return errors.Join(err, os.RemoveAll(c.Dir))
}

// serve runs the cluster until ctx ends or the cluster does.
func (c cluster) serve(ctx context.Context) error {
	began := time.Now()
	if err := os.Mkdir(c.Dir, 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(c.path(marker), nil, 0o644); err != nil {
		return err
	}
	if err := os.Mkdir(c.path("log"), 0o755); err != nil {
		return err
	}
	// Nodes see this folder and that of the parts.
	for number, image := range c.Images {
		if err := copyFile(image, c.path(fmt.Sprintf("image-%d.tar", number))); err != nil {
			return err
		}
	}
	// The kube-apiserver is reached through a listener of this network namespace, which the first stage inherits.
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer listener.Close()
	inherited, err := listener.(*net.TCPListener).File()
	if err != nil {
		return err
	}
	defer inherited.Close()
	if err := os.WriteFile(c.path("address"), []byte(listener.Addr().String()), 0o644); err != nil {
		return err
	}
	// The death signal is sent when the thread ends that has started the stage.
	runtime.LockOSThread()
	first := exec.Command("/proc/self/exe", stage(networkStage, node{cluster: c})...)
	first.ExtraFiles, first.Stderr = []*os.File{inherited}, os.Stderr
	first.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL, Setpgid: true}
	progress, err := first.StdoutPipe()
	if err != nil {
		return err
	}
	if err := first.Start(); err != nil {
		return err
	}
	end := context.AfterFunc(ctx, func() { _ = first.Process.Kill() })
	defer end()
	for lines := bufio.NewScanner(progress); lines.Scan(); {
		fmt.Printf("• %s, %.1f s\n", lines.Text(), time.Since(began).Seconds())
		if strings.HasPrefix(lines.Text(), "ready") {
			if err := c.afterReady(ctx); err != nil {
				err = errors.Join(err, first.Process.Kill(), first.Wait())
				if ctx.Err() != nil {
					return nil
				}
				return err
			}
		}
	}
	err = first.Wait()
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("the cluster has ended: %w", err)
}

// afterReady runs what is to be run, and says how the cluster is reached.
func (c cluster) afterReady(ctx context.Context) error {
	kubeconfig := c.path("admin.kubeconfig")
	if c.Run != "" {
		command := exec.CommandContext(ctx, "sh", "-c", c.Run)
		command.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig, "KUBECACHEDIR="+c.path("kube-cache"), "PATH="+c.Parts+":"+os.Getenv("PATH"))
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		// It removes what it has made.
		command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
		command.Cancel = func() error { return syscall.Kill(-command.Process.Pid, syscall.SIGTERM) }
		command.WaitDelay = 5 * time.Second
		if err := command.Run(); err != nil {
			return fmt.Errorf("%s: %w", c.Run, err)
		}
	}
	fmt.Printf("\n  export KUBECONFIG='%s' PATH='%s':$PATH\n\n", kubeconfig, c.Parts)
	return nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
