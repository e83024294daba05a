package testenv_test

import (
	"errors"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/testenv"
)

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
	cluster := testenv.StartForTest(t, testenv.Options{})
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

	// SIGKILL leaves no time for a last flush.
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
	cluster := testenv.StartForTest(t, testenv.Options{})
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
	cluster := testenv.StartForTest(t, testenv.Options{
		EventTTL:      2 * time.Second,
		APIServerArgs: []string{"--audit-policy-file=" + policy, "--audit-log-path=" + audit, "--audit-log-mode=blocking"},
	})
	client := clientFor(t, cluster.Config())
	createEvent(t, client, metav1.NamespaceDefault, "short-lived")

	log, err := os.ReadFile(audit)
	if err != nil || !strings.Contains(string(log), "short-lived") {
		t.Errorf("the audit log does not mention the event (%v)", err)
	}
	await.Until(t, "the event to expire", func() bool {
		_, err := client.CoreV1().Events(metav1.NamespaceDefault).Get(t.Context(), "short-lived", metav1.GetOptions{})
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
	cluster := testenv.StartForTest(t, testenv.Options{DataDir: dir})
	_, err := testenv.Start(t.Context(), testenv.Options{DataDir: dir})
	if err == nil || !strings.Contains(err.Error(), "in use by another control plane") {
		t.Errorf("second control plane in one directory: %v", err)
	}
	created := createEvent(t, clientFor(t, cluster.Config()), metav1.NamespaceDefault, "kept")
	if err := cluster.Stop(); err != nil {
		t.Fatal(err)
	}
	again := testenv.StartForTest(t, testenv.Options{DataDir: dir})
	requireEvent(t, clientFor(t, again.Config()), created)
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
