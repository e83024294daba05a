package testenv_test

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/testenv"
)

// deadline is for what takes a second or two on an idle machine.
const deadline = 2 * time.Minute

func TestServerIsReadyAndIsTheVersionThatIsLinked(t *testing.T) {
	client := clientFor(t, testenv.Shared(t).Config())
	body, err := client.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(t.Context())
	if err != nil || string(body) != "ok" {
		t.Errorf("/readyz: %q, %v", body, err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if version.GitVersion != "v1.36.3" || version.Major != "1" || version.Minor != "36" {
		t.Errorf("version is %s (%s.%s), want v1.36.3 (1.36)", version.GitVersion, version.Major, version.Minor)
	}
}

func TestKubeconfigIsPrivateAndWorks(t *testing.T) {
	path := testenv.Shared(t).Kubeconfig()
	requirePrivate(t, path)
	config, err := clientcmd.BuildConfigFromFlags("", path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, config).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
}

func TestNamespacesAreSeparateAndGoWithTheirTest(t *testing.T) {
	cluster := testenv.Shared(t)
	client := clientFor(t, cluster.Config())
	var first, second string
	t.Run("two of One/test", func(t *testing.T) {
		first, second = cluster.Namespace(t), cluster.Namespace(t)
		createEvent(t, client, first, "event")
		if first == second {
			t.Errorf("both are called %s", first)
		}
		const prefix = "testnamespacesareseparateandgowiththeirtest-two-of"
		if !strings.HasPrefix(first, prefix) {
			t.Errorf("%s does not begin with %s", first, prefix)
		}
	})
	for _, name := range []string{first, second} {
		if _, err := client.CoreV1().Namespaces().Get(t.Context(), name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("namespace %s is still there: %v", name, err)
		}
	}
	events, err := client.CoreV1().Events(first).List(t.Context(), metav1.ListOptions{})
	if err != nil || len(events.Items) > 0 {
		t.Errorf("%d events are still there (%v)", len(events.Items), err)
	}
}

func TestRestartIsTheSameClusterToItsClients(t *testing.T) {
	cluster := start(t, testenv.Options{})
	client := clientFor(t, cluster.Config())
	token := clientFor(t, cluster.ServiceAccount(t, metav1.NamespaceDefault, "restarted"))
	created := createEvent(t, client, metav1.NamespaceDefault, "kept")

	if err := cluster.Down(); err != nil {
		t.Fatal(err)
	}
	requireRefused(t, cluster)
	if err := cluster.Up(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireEvent(t, client, created)
	if _, err := token.Discovery().ServerVersion(); err != nil {
		t.Errorf("token from before the restart: %v", err)
	}

	// Without a word, and so without a last flush.
	createdLast := createEvent(t, client, metav1.NamespaceDefault, "last-before-kill")
	if err := cluster.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	requireEvent(t, client, created)
	requireEvent(t, client, createdLast)

	if err := errors.Join(cluster.Stop(), cluster.Stop()); err != nil {
		t.Errorf("stop, twice: %v", err)
	}
	requireGone(t, cluster.DataDir())
}

func TestSignalStopMakesAServerThatDoesNotAnswer(t *testing.T) {
	cluster := start(t, testenv.Options{})
	config := cluster.Config()
	config.Timeout = 500 * time.Millisecond
	client := clientFor(t, config)
	if err := cluster.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Discovery().ServerVersion(); err == nil {
		t.Error("a stopped server has answered")
	}
	// Ends all the same.
	if err := cluster.Stop(); err != nil {
		t.Error(err)
	}
}

func TestOptionsReachTheServer(t *testing.T) {
	dir := t.TempDir()
	policy, audit := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	writeFile(t, policy, "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: Metadata}]\n")
	cluster := start(t, testenv.Options{
		EventTTL:      2 * time.Second,
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + audit, "--audit-log-mode=blocking"},
	})
	client := clientFor(t, cluster.Config())
	createEvent(t, client, metav1.NamespaceDefault, "short-lived")

	log, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(log), "short-lived") {
		t.Errorf("the audit log does not mention the event (%v)", err)
	}
	eventually(t, "the event expires", func(ctx context.Context) bool {
		_, err := client.CoreV1().Events(metav1.NamespaceDefault).Get(ctx, "short-lived", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
}

func TestAFailedStartSaysWhy(t *testing.T) {
	_, err := testenv.Start(t.Context(), testenv.Options{APIServerArgs: []string{"--no-such-flag"}})
	if err == nil || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("got %v", err)
	}
}

func TestADataDirectoryIsKeptAndHasOneUser(t *testing.T) {
	dir := t.TempDir()
	cluster := start(t, testenv.Options{DataDir: dir})
	_, err := testenv.Start(t.Context(), testenv.Options{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by another control plane") {
		t.Errorf("second control plane in one directory: %v", err)
	}
	created := createEvent(t, clientFor(t, cluster.Config()), metav1.NamespaceDefault, "kept")
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	again := start(t, testenv.Options{DataDir: dir})
	requireEvent(t, clientFor(t, again.Config()), created)
}

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
		t.Fatal("the control plane is not running: nobody holds its lock")
	}

	if err := parent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = parent.Wait() // "signal: killed"
	// The lock is held for exactly as long as the process lives.
	eventually(t, "the control plane ends", func(context.Context) bool { return tryLock(lock) })
	requireGone(t, dir)
}

// SIGTERM, the other way to ask, is what Down uses.
func TestOrderlyEndLeavesNothingBehind(t *testing.T) {
	binary, err := testenv.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, end := range map[string]func(*exec.Cmd, io.Closer) error{
		"SIGINT":    func(cmd *exec.Cmd, _ io.Closer) error { return cmd.Process.Signal(os.Interrupt) },
		"stdin EOF": func(_ *exec.Cmd, stdin io.Closer) error { return stdin.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			temp := t.TempDir()
			kubeconfig := filepath.Join(temp, "kubeconfig")
			cmd := exec.CommandContext(t.Context(), binary, "--exit-on-stdin-eof", "--kubeconfig="+kubeconfig)
			cmd.Env = append(os.Environ(), "TMPDIR="+temp)
			cmd.Stderr = os.Stderr
			stdin, err := cmd.StdinPipe()
			if err != nil {
				t.Fatal(err)
			}
			stdout, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			line, err := bufio.NewReader(stdout).ReadString('\n')
			if err != nil || !strings.HasPrefix(line, "ready https://127.0.0.1:") || !strings.HasSuffix(line, " "+kubeconfig+"\n") {
				t.Errorf("ready line is %q (%v)", line, err)
			}
			requirePrivate(t, kubeconfig)
			asked := time.Now()
			if err := end(cmd, stdin); err != nil {
				t.Fatal(err)
			}
			if err := cmd.Wait(); err != nil {
				t.Errorf("ended with %v", err)
			}
			if took := time.Since(asked); took > 12*time.Second {
				t.Errorf("took %s to end", took)
			}
			if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v (%v)", left, err)
			}
		})
	}
}

func TestAnEndDuringTheStartLeavesNothingBehind(t *testing.T) {
	binary, err := testenv.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	temp := t.TempDir()
	var stderr strings.Builder
	cmd := exec.CommandContext(t.Context(), binary, "--exit-on-stdin-eof")
	cmd.Env = append(os.Environ(), "TMPDIR="+temp)
	cmd.Stderr = &stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "etcd has made its database", func(context.Context) bool {
		found, _ := filepath.Glob(filepath.Join(temp, "*", "etcd", "member", "snap", "db"))
		return len(found) > 0
	})
	if err := errors.Join(stdin.Close(), cmd.Wait()); err != nil {
		t.Errorf("ended with %v: %s", err, stderr.String())
	}
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v (%v)", left, err)
	}
}

func TestWrongFlagIsOneLineAndExitCodeOne(t *testing.T) {
	binary, err := testenv.Binary(t.Context())
	if err != nil {
		t.Fatal(err)
	}
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

func start(t *testing.T, opts testenv.Options) *testenv.ControlPlane {
	t.Helper()
	cluster, err := testenv.Start(t.Context(), opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

func clientFor(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func createEvent(t *testing.T, client kubernetes.Interface, namespace, name string) *corev1.Event {
	t.Helper()
	event, err := client.CoreV1().Events(namespace).Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: name},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: "pod"},
		Reason:         "Tested",
		Type:           corev1.EventTypeNormal,
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return event
}

func requireEvent(t *testing.T, client kubernetes.Interface, want *corev1.Event) {
	t.Helper()
	got, err := client.CoreV1().Events(want.Namespace).Get(t.Context(), want.Name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got.UID != want.UID {
		t.Errorf("event %s is another one: UID %s, want %s", want.Name, got.UID, want.UID)
	}
}

func requireRefused(t *testing.T, cluster *testenv.ControlPlane) {
	t.Helper()
	address, err := url.Parse(cluster.Config().Host)
	if err != nil {
		t.Fatal(err)
	}
	conn, err := net.Dial("tcp", address.Host)
	if err == nil {
		conn.Close()
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("dialling a control plane that is down: %v", err)
	}
}

func requireGone(t *testing.T, path string) {
	t.Helper()
	if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s is still there (%v)", path, err)
	}
}

func requirePrivate(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("%s has mode %s", path, info.Mode())
	}
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

func tryLock(file *os.File) bool {
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// eventually polls, because neither an expiry nor RBAC's caches announce what
// they do.
func eventually(t *testing.T, what string, condition func(context.Context) bool) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, deadline, true, func(ctx context.Context) (bool, error) {
		return condition(ctx), nil
	})
	if err != nil {
		t.Fatalf("%s: %v", what, err)
	}
}
