package app_test

import (
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/eventd/eventd/pkg/query/v1alpha1"
	"github.com/eventd/eventd/test/servertest"
	"github.com/eventd/eventd/test/testenv"
)

// inCluster returns the plugin of an account in a real cluster, in whose namespace a Lease leads to a server.
func inCluster(t *testing.T, cluster *testenv.ControlPlane, namespace, account string, eventd *servertest.Eventd, rules ...rbacv1.PolicyRule) *cli {
	t.Helper()
	config := cluster.ServiceAccount(t, namespace, account)
	cluster.Grant(t, namespace, account, append(rules,
		rbacv1.PolicyRule{APIGroups: []string{"coordination.k8s.io"}, Resources: []string{"leases"}, Verbs: []string{"get"}})...)
	file := filepath.Join(t.TempDir(), "kubeconfig")
	if err := testenv.WriteKubeconfig(file, config); err != nil {
		t.Fatal(err)
	}
	return &cli{t: t, eventd: eventd, flags: []string{
		"--kubeconfig=" + file, "--cache-dir=" + t.TempDir(), "--namespace=" + namespace, "--lease-namespace=" + namespace,
	}}
}

// lead writes a Lease that leads to a server.
func lead(t *testing.T, cluster *testenv.ControlPlane, namespace string, eventd *servertest.Eventd) {
	t.Helper()
	lease := servertest.Lease(namespace, servertest.Identity, eventd.Address(), eventd.Fingerprint())
	leases := kubernetes.NewForConfigOrDie(cluster.Config()).CoordinationV1().Leases(namespace)
	if _, err := leases.Create(t.Context(), lease, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

var template = corev1.PodTemplateSpec{
	ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
	Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "app", Image: "app"}}},
}

// deploy makes a Deployment with a ReplicaSet and two Pods, as the controllers would, and two Pods of others.
func deploy(t *testing.T, cluster *testenv.ControlPlane, namespace string) {
	t.Helper()
	clients := kubernetes.NewForConfigOrDie(cluster.Config())
	selector := &metav1.LabelSelector{MatchLabels: template.Labels}
	deployment, err := clients.AppsV1().Deployments(namespace).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"}, Spec: appsv1.DeploymentSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := func(name string, owner metav1.Object, kind string) metav1.ObjectMeta {
		m := metav1.ObjectMeta{Name: name, Labels: template.Labels}
		if owner != nil {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: owner.GetName(), UID: owner.GetUID()}}
		}
		return m
	}
	set, err := clients.AppsV1().ReplicaSets(namespace).Create(t.Context(), &appsv1.ReplicaSet{
		ObjectMeta: owned("web-1", deployment, "Deployment"), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	former := &metav1.ObjectMeta{Name: set.Name, UID: "of-one-that-was-deleted"}
	for _, pod := range []metav1.ObjectMeta{
		owned("web-1-a", set, "ReplicaSet"), owned("web-1-b", set, "ReplicaSet"), owned("of-former", former, "ReplicaSet"), owned("other", nil, ""),
	} {
		if _, err := clients.CoreV1().Pods(namespace).Create(t.Context(), &corev1.Pod{ObjectMeta: pod, Spec: template.Spec}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
}

// timelines answers with one Event of the object of the query. Those of objects that come later are older.
func timelines(w http.ResponseWriter, req *http.Request) {
	query := req.URL.Query()
	regarding := v1alpha1.ObjectReference{Group: query.Get(v1alpha1.ParamGroup), Kind: query.Get(v1alpha1.ParamKind), Name: query.Get(v1alpha1.ParamName), Namespace: query.Get(v1alpha1.ParamNamespace)}
	item := event(regarding.Name+"/1", "of "+regarding.Name)
	item.Regarding, item.Last = regarding, ago(20+len(regarding.Name))
	servertest.WriteJSON(w, http.StatusOK, v1alpha1.Timeline{TypeMeta: typeMeta("Timeline"), Items: []v1alpha1.TimelineItem{item}})
}

func TestTimelineFollowsOwnersWithTheRightsOfTheCaller(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	deploy(t, cluster, namespace)
	eventd := servertest.NewEventd(t, http.HandlerFunc(timelines))
	lead(t, cluster, namespace, eventd)
	c := inCluster(t, cluster, namespace, "jane", eventd,
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"deployments"}, Verbs: []string{"get"}},
		rbacv1.PolicyRule{APIGroups: []string{"apps"}, Resources: []string{"replicasets"}, Verbs: []string{"list"}},
		rbacv1.PolicyRule{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"list"}})
	want := "LAST SEEN   TYPE      REASON    OBJECT                  COUNT   MESSAGE\n" +
		"27m         Warning   BackOff   Pod/web-1-a             4       of web-1-a\n" +
		"27m         Warning   BackOff   Pod/web-1-b             4       of web-1-b\n" +
		"25m         Warning   BackOff   ReplicaSet.apps/web-1   4       of web-1\n" +
		"23m         Warning   BackOff   Deployment.apps/web     4       of web\n"
	out, errOut, code := c.run("timeline", "deploy/web", "--owned")
	// Volumes of Pods may not be listed.
	if out != want || code != 0 || !strings.HasPrefix(errOut, "Warning: persistentvolumeclaims are left out: ") {
		t.Errorf("got %d\n%s%s\nnot\n%s", code, out, errOut, want)
	}
	// The newest, of all of them.
	out, _, _ = c.run("timeline", "deploy/web", "--owned", "--limit=2", "--no-headers")
	if strings.Count(out, "\n") != 2 || !strings.Contains(out, "Deployment.apps/web") || !strings.Contains(out, "ReplicaSet.apps/web-1") {
		t.Errorf("with a limit: %s", out)
	}
	if out, _, code := c.run("__complete", "why", "po/web"); code != 0 || out != "po/web-1-a\npo/web-1-b\n:4\n" {
		t.Errorf("completion: %q", out)
	}

	john := inCluster(t, cluster, namespace, "john", eventd)
	if _, errOut, code := john.run("timeline", "deploy/web", "--owned"); code != 1 || !strings.HasPrefix(errOut, "Error from server (Forbidden): deployments.apps \"web\" is forbidden") {
		t.Errorf("without rights: %d, %s", code, errOut)
	}
}

// An error of the way to eventd has a second line: what to do, with the namespace that was named.
func TestAConnectionThatFailsSaysWhatToDo(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	eventd := servertest.NewEventd(t, servertest.Refuse(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized"))
	lead(t, cluster, namespace, eventd)
	kubeconfig := func(config *rest.Config) string {
		file := filepath.Join(t.TempDir(), "kubeconfig")
		if err := testenv.WriteKubeconfig(file, config); err != nil {
			t.Fatal(err)
		}
		return "--kubeconfig=" + file
	}
	stranger, admin := kubeconfig(cluster.ServiceAccount(t, namespace, "stranger")), kubeconfig(cluster.Config())
	behind := newCLI(t, eventd.Config.Handler)
	proxy := httptest.NewTLSServer(http.StripPrefix("/k8s/clusters/c-1", behind.cluster.Config.Handler))
	t.Cleanup(proxy.Close)
	proxied := kubeconfig(&rest.Config{Host: proxy.URL + "/k8s/clusters/c-1", BearerToken: servertest.Token, TLSClientConfig: rest.TLSClientConfig{CAData: servertest.PEM(proxy.Certificate())}})
	in := " --lease-namespace=" + namespace
	for _, test := range []struct{ line, want, advice string }{
		{"status " + stranger + in, "Error from server (Forbidden): reading eventd's Lease: leases.coordination", "To connect, you need rights in " + namespace + ": https://"},
		{"status " + admin, "error: there is no Lease kube-system/eventd of eventd", "Install eventd: https://"},
		{"status " + admin + in, "error: You must be logged in to the server (Unauthorized)", ""},
		{"status " + admin + in + " --connect=forward", "error: connecting to eventd, which holds the Lease " + namespace + "/eventd: there is no Pod", "Is a replica ready? kubectl -n " + namespace + " get pods"},
		{"status " + proxied, "error: You must be logged in to the server (Unauthorized)", "The server of your kubeconfig is a proxy such as Rancher's: its address has the path /k8s/clusters/c-1. The cluster does not"},
		{"status " + proxied + " --connect=forward --lease-name=none", "error: there is no Lease kube-system/none", "Install eventd: https://"},
	} {
		var out, errOut output
		code := (&cli{t: t}).runIn(t.Context(), &out, &errOut, append(strings.Fields(test.line), "--cache-dir="+t.TempDir())...)
		first, second, _ := strings.Cut(errOut.String(), "\n")
		if code != 1 || !strings.HasPrefix(first, test.want) || !strings.HasPrefix(second, test.advice) || (second == "") != (test.advice == "") {
			t.Errorf("%s: exit code %d, %s", test.line, code, errOut.String())
		}
	}
}

func TestKubectlRunsAndCompletesThePlugin(t *testing.T) {
	cluster := testenv.Shared(t)
	namespace := cluster.Namespace(t)
	eventd := servertest.NewEventd(t, http.HandlerFunc(timelines))
	lead(t, cluster, namespace, eventd)
	c := inCluster(t, cluster, namespace, "jane", eventd)
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.Symlink(binary, filepath.Join(dir, "kubectl-eventd")); err != nil {
		t.Fatal(err)
	}
	// As docs/kubectl-eventd.md has it, but that kubectl is not called so in a test.
	script := "#!/bin/sh\nkubectl-eventd __complete \"$@\"\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl_complete-eventd"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+string(os.PathListSeparator)+os.Getenv("PATH"))
	t.Setenv(asPlugin, "true")

	out, err := testenv.RunKubectl(t.Context(), append([]string{"eventd", "timeline", "pod/web-0"}, c.flags...)...)
	if want := "LAST SEEN   TYPE      REASON    OBJECT      COUNT   MESSAGE\n25m         Warning   BackOff   Pod/web-0   4       of web-0\n"; err != nil || string(out) != want {
		t.Errorf("got %s, %v", out, err)
	}
	_, err = testenv.RunKubectl(t.Context(), append([]string{"eventd", "why", "pod"}, c.flags...)...)
	if err == nil || !strings.Contains(err.Error(), "exit status 1") || !strings.Contains(err.Error(), "error: name an object as KIND/NAME") {
		t.Errorf("a wrong argument: %v", err)
	}
	out, err = testenv.RunKubectl(t.Context(), "__complete", "eventd", "why", "deplo")
	if err != nil || !strings.HasPrefix(string(out), "deployment/\n") {
		t.Errorf("completion: %q, %v", out, err)
	}
}
