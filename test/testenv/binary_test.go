package testenv_test

import (
	"bufio"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// The parent is killed with the control plane's stderr a pipe to it, which is
// the case in which a log line during the shutdown could end the shutdown.
func TestEndsWithAKilledParent(t *testing.T) {
	testenv.SkipIfShort(t)
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
	kubeconfig, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Dir(kubeconfig)
	file, err := os.Open(filepath.Join(dir, "lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	// The lock is held for exactly as long as the process lives.
	locked := func() bool { return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil }
	if !locked() {
		t.Fatal("the control plane is not running: its lock is free")
	}
	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	await.Until(t, "the control plane to end", func() bool { return !locked() })
	requireGone(t, dir)
}

func TestAFailedStartSaysWhy(t *testing.T) {
	testenv.SkipIfShort(t)
	_, err := testenv.Start(t.Context(), testenv.Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v", err)
	}
}

func requireGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}
