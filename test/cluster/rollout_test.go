package cluster

import (
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/test/await"
)

var bothNodes = []string{"node-1", "node-2"}

// Whatever came before, and wherever the replicas were that are replaced: after a rollout, they do not share a node.
func TestReplicasAreApartAfterEveryRollout(t *testing.T) {
	install(t)
	for _, drained := range []bool{false, true} {
		if drained {
			drain(t, "node-1")
			awaitRollout(t)
			kubectl(t, "uncordon", "node-1")
		}
		kubectl(t, "-n", system, "rollout", "restart", "deployment/"+intake, "deployment/"+observe)
		awaitRollout(t)
		for _, deployment := range []string{intake, observe} {
			if nodes := nodesOf(t, deployment); !slices.Equal(nodes, bothNodes) {
				t.Errorf("%s is on %q (after a drain: %t)", deployment, nodes, drained)
			}
		}
	}
}

func drain(t *testing.T, name string) {
	t.Helper()
	kubectl(t, "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s")
}

// Where there is one node, both replicas run on it.
func TestReplicasShareTheOnlyNode(t *testing.T) {
	install(t)
	kubectl(t, "cordon", "node-2")
	defer kubectl(t, "uncordon", "node-2")
	kubectl(t, "-n", system, "rollout", "restart", "deployment/"+intake, "deployment/"+observe)
	awaitRollout(t)
	for _, deployment := range []string{intake, observe} {
		if nodes := nodesOf(t, deployment); !slices.Equal(nodes, []string{"node-1", "node-1"}) {
			t.Errorf("%s is on %q", deployment, nodes)
		}
	}
}

// A kubelet probes a container until that has ended. An orderly end is no Warning.
func TestAnOrderlyEndIsNoWarning(t *testing.T) {
	install(t)
	ending := append(podsOf(t, intake), podsOf(t, observe)...)
	before := map[string]bool{} // such as that it was not ready at its start
	for _, pod := range ending {
		for _, warning := range warnings(t, pod) {
			before[warning] = true
		}
	}
	kubectl(t, "-n", system, "rollout", "restart", "deployment/"+intake, "deployment/"+observe)
	awaitRollout(t)
	for _, pod := range ending {
		// The kubelet has nothing more to say of a Pod that is gone.
		await.Within(t, startTimeout, pod.Name+" is gone", func() bool {
			_, err := client.CoreV1().Pods(system).Get(t.Context(), pod.Name, metav1.GetOptions{})
			return err != nil
		})
		for _, warning := range warnings(t, pod) {
			if !before[warning] {
				t.Error(warning)
			}
		}
	}
}

// warnings are those about a Pod, with their versions.
func warnings(t *testing.T, pod corev1.Pod) (found []string) {
	t.Helper()
	list, err := client.CoreV1().Events(system).List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.uid=" + string(pod.UID)})
	if err != nil {
		t.Fatal(err)
	}
	for _, event := range list.Items {
		found = append(found, fmt.Sprintf("%s %s: %s: %s", event.Name, event.ResourceVersion, event.Reason, event.Message))
	}
	return found
}

// A kubelet replaces the files of a ConfigMap through a symbolic link, and eventd reads them again.
func TestAConfigMapThatChangesIsReadAgain(t *testing.T) {
	install(t)
	changed := func() bool {
		status := kubectlEventd(t, "status", "--once")
		return strings.Contains(status, "another-name")
	}
	if changed() {
		t.Fatal("it is there already")
	}
	kubectl(t, "apply", "-k", overlay{more: strings.ReplaceAll(receivers, "name: lines", "name: another-name")}.write(t))
	await.Within(t, startTimeout, "the status shows the receiver", changed)
	// Two receivers one after the other deliver the same: later tests have the one of before from their beginning.
	install(t)
	await.Within(t, startTimeout, "the receiver is gone", func() bool {
		status := kubectlEventd(t, "status", "--once")
		return strings.Contains(status, "collector") && !strings.Contains(status, "another-name")
	})
}

// kubectlEventd returns what the plugin prints.
func kubectlEventd(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), filepath.Join(*parts, "kubectl-eventd"), append([]string{"--kubeconfig", filepath.Join(dir, "admin.kubeconfig")}, args...)...).Output()
	if err != nil {
		t.Logf("kubectl eventd %q: %v", args, err)
	}
	return string(out)
}

// Pods of deploy/ are such as the strictest policies admit, and are what their NetworkPolicies say.
func TestPoliciesHold(t *testing.T) {
	install(t)
	kubectl(t, "create", "namespace", "restricted")
	kubectl(t, "label", "namespace", "restricted", "pod-security.kubernetes.io/enforce=restricted")
	for _, deployment := range []string{intake, observe} {
		pod := podsOf(t, deployment)[0]
		pod.ObjectMeta = metav1.ObjectMeta{Name: deployment, Namespace: "restricted"}
		pod.Spec.NodeName, pod.Spec.ServiceAccountName, pod.Spec.PriorityClassName, pod.Spec.Priority = "", "default", "", nil
		_, err := client.CoreV1().Pods("restricted").Create(t.Context(), &pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			t.Errorf("%s in a restricted namespace: %v", deployment, err)
		}
	}

	apply(t, `
apiVersion: v1
kind: Pod
metadata: {name: server, namespace: default}
spec:
  containers: [{name: server, image: "busybox:1.35", command: [httpd, -f, -p, "8080"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client, namespace: default}
spec:
  containers: [{name: client, image: "busybox:1.35", command: [sleep, "36000"]}]
`)
	kubectl(t, "wait", "--for=condition=Ready", "--timeout=120s", "pod/server", "pod/client")
	server, err := client.CoreV1().Pods("default").Get(t.Context(), "server", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	plain, err := client.CoreV1().Pods("default").Get(t.Context(), "client", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	await.Within(t, startTimeout, "a Pod without a policy connects", func() bool { return connects(t, *plain, server.Status.PodIP, "8080") })
	for _, deployment := range []string{intake, observe} {
		pod := podsOf(t, deployment)[0]
		await.Within(t, startTimeout, deployment+" connects to the apiserver", func() bool { return connects(t, pod, "10.0.0.1", "443") })
		if connects(t, pod, server.Status.PodIP, "8080") {
			t.Errorf("%s connects to any Pod", deployment)
		}
		if !connects(t, *plain, pod.Status.PodIP, "10280") {
			t.Errorf("a client does not connect to %s", deployment)
		}
		listen(t, pod, "8080")
		await.Within(t, startTimeout, deployment+" listens elsewhere", func() bool { return connects(t, pod, "127.0.0.1", "8080") })
		if connects(t, *plain, pod.Status.PodIP, "8080") {
			t.Errorf("a client connects to any port of %s", deployment)
		}
	}
}

// connects reports whether a TCP connection from a Pod's network can be opened.
func connects(t *testing.T, from corev1.Pod, ip, port string) bool {
	t.Helper()
	return inNetwork(t, from, fmt.Sprintf("nc -w 3 %s %s </dev/null", ip, port)) == nil
}

// listen accepts connections in a Pod's network, until its node ends.
func listen(t *testing.T, in corev1.Pod, port string) {
	t.Helper()
	if err := inNetwork(t, in, "httpd -p "+port); err != nil {
		t.Fatal(err)
	}
}

// inNetwork runs a command of busybox in a Pod's network.
func inNetwork(t *testing.T, pod corev1.Pod, command string) error {
	t.Helper()
	_, err := tryNode(t.Context(), pod.Spec.NodeName, "exec", "sh", "-c", fmt.Sprintf(`for p in $(ls /proc | grep '^[0-9]'); do if grep -q %s /proc/$p/cgroup 2>/dev/null; then
  nsenter --target $p --net %s/deb/usr/bin/busybox %s
  exit; fi; done; exit 9`, pod.UID, *parts, command))
	return err
}
