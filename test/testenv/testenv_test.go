package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

// parentEnv makes this test binary a program that starts a control plane, prints its
// kubeconfig, and waits until it is killed.
const parentEnv = "TESTENV_TEST_PARENT"

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) != "" {
		beParent()
		return
	}
	// Also the test that a runner leaves no goroutines.
	goleak.VerifyTestMain(testenv.Runner(m))
}

func beParent() {
	// With much to log there is a write to the broken pipe after our end.
	opts := testenv.Options{APIServerArgs: []string{"--v=2"}}
	c, err := testenv.Start(context.Background(), opts)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(c.Kubeconfig())
	select {}
}

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

// A test would see nothing of missing rights if its account had others.
func TestServiceAccountMayDoWhatItIsGrantedAndNoMore(t *testing.T) {
	const account = "reader"
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testenv.WriteKubeconfig(kubeconfig, cluster.ServiceAccount(t, namespace, account)); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{kubeconfig, cluster.Kubeconfig()} {
		if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s can be read by others: %v (%v)", path, info.Mode(), err)
		}
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	list := func(namespace string) error {
		_, err := kubernetes.NewForConfigOrDie(config).CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		return err
	}
	if err := list(namespace); !apierrors.IsForbidden(err) {
		t.Fatalf("without a RoleBinding: %v, want 403", err)
	}
	right := rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"events"}, Verbs: []string{"list"}}
	cluster.Grant(t, namespace, account, right)
	if err := list(namespace); err != nil {
		t.Errorf("with a RoleBinding: %v", err)
	}
	if err := list(metav1.NamespaceDefault); !apierrors.IsForbidden(err) {
		t.Errorf("in another namespace: %v, want 403", err)
	}
}
