package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/process"
	"github.com/eventd/eventd/test/testenv"
)

// The parent is killed with the control plane's stderr a pipe to it, which is
// the case in which a log line during the shutdown could end the shutdown.
func TestEndsWithAKilledParent(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	parent.Stderr = os.Stderr
	stdout, err := parent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := parent.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := strings.TrimSpace(line)
	lock, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if tryLock(lock) {
		t.Fatal("the control plane is not running: its lock is free")
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	// The lock is held for exactly as long as the process lives.
	await.Until(t, "the control plane to end", func() bool { return tryLock(lock) })
	requireGone(t, dir)
}

// Down uses SIGTERM; these are the other ways.
func TestOrderlyEndLeavesNothingBehind(t *testing.T) {
	type end struct {
		begun func(temp string, ready bool) bool
		by    func(*process.Process, *os.File) error
	}
	ready := func(_ string, ready bool) bool { return ready }
	starting := func(temp string, _ bool) bool {
		found, _ := filepath.Glob(filepath.Join(temp, "*", "etcd", "member", "snap", "db"))
		return len(found) > 0
	}
	eof := func(_ *process.Process, stdin *os.File) error { return stdin.Close() }
	for name, end := range map[string]end{
		"SIGINT":                     {ready, func(p *process.Process, _ *os.File) error { return p.Send(os.Interrupt) }},
		"stdin EOF":                  {ready, eof},
		"stdin EOF during the start": {starting, eof},
	} {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			kubeconfig := filepath.Join(temp, "kubeconfig")
			cmd := exec.Command(controlPlane(t), "--exit-on-stdin-eof", "--kubeconfig="+kubeconfig)
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			stdout, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
			if err != nil {
				t.Fatal(err)
			}
			defer stdout.Close()
			cmd.Stdout = stdout
			in, stdin, err := os.Pipe()
			if err != nil {
				t.Fatal(err)
			}
			defer stdin.Close()
			cmd.Stdin = in
			p, err := process.Start("control plane", "", cmd)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(p.Kill)
			_ = in.Close()
			var line []byte
			await.Until(t, "the moment to end it", func() bool {
				line, err = os.ReadFile(stdout.Name())
				return err != nil || p.Ended() || end.begun(temp, strings.HasSuffix(string(line), "\n"))
			})
			if len(line) > 0 {
				if !strings.HasPrefix(string(line), "ready https://127.0.0.1:") || !strings.HasSuffix(string(line), " "+kubeconfig+"\n") {
					t.Errorf("ready line is %q (%v)", line, err)
				}
				requirePrivate(t, kubeconfig)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
			defer cancel()
			if err := errors.Join(end.by(p, stdin), p.End(ctx)); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

func controlPlane(t *testing.T) string {
	t.Helper()
	testenv.SkipIfShort(t)
	binary, err := testenv.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return binary
}

func TestWrongFlagIsOneLineAndExitCodeOne(t *testing.T) {
	binary := controlPlane(t)
	for _, args := range [][]string{
		{"--port=70000"},
		{"--etcd-port=-1"},
		{"--event-ttl=0s"},
		{"--no-such-flag"},
		{"an-argument"},
		{"--apiserver-arg=v=4"},
		{"--remove-data-dir-on-stdin-eof"},
		{"token"},
		{"token", "--kubeconfig=a", "--namespace=b", "--serviceaccount=c", "--out=d", "--duration=1m"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			output, err := exec.CommandContext(t.Context(), binary, args...).CombinedOutput()
			exit := &exec.ExitError{}
			if !errors.As(err, &exit) || exit.ExitCode() != 1 {
				t.Errorf("ended with %v", err)
			}
			if strings.Count(string(output), "\n") != 1 || !strings.HasPrefix(string(output), "controlplane: ") {
				t.Errorf("output is %q", output)
			}
		})
	}
}

func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}
