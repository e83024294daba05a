package cluster

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/eventd/eventd/test/await"
)

// Both replicas run on the only node that there is, and after the next rollout, they do not share a node: wherever the replicas were
// that are replaced.
func TestReplicasShareTheOnlyNodeAndNoOther(t *testing.T) {
	install(t)
	want := func(nodes ...string) {
		t.Helper()
		rollOut(t)
		for _, deployment := range []string{intake, observe} {
			if got := nodesOf(t, deployment); !slices.Equal(got, nodes) {
				t.Errorf("%s is on %q, not on %q", deployment, got, nodes)
			}
		}
	}
	kubectl(t, "cordon", "node-2")
	defer kubectl(t, "uncordon", "node-2") // also after a failure
	want("node-1", "node-1")
	kubectl(t, "uncordon", "node-2")
	want("node-1", "node-2")
}

// rollOut replaces all replicas. A kubelet probes a container until that has ended, and a moment longer: the orderly end of one is
// no Warning.
func rollOut(t *testing.T) {
	t.Helper()
	ending := map[types.UID]bool{}
	before := map[string]bool{} // such as that it was not ready at its start
	for _, pod := range append(podsOf(t, intake), podsOf(t, observe)...) {
		ending[pod.UID] = true
		for _, event := range warnings(t, pod.UID) {
			before[event.ResourceVersion] = true
		}
	}
	changes, err := client.CoreV1().Pods(system).Watch(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=eventd"})
	if err != nil {
		t.Fatal(err)
	}
	defer changes.Stop()
	kubectl(t, "-n", system, "rollout", "restart", "deployment/"+intake, "deployment/"+observe)
	for deadline := time.After(startTimeout); len(ending) > 0; {
		select {
		case change := <-changes.ResultChan():
			pod, ok := change.Object.(*corev1.Pod)
			if !ok {
				t.Fatalf("the watch of Pods has ended: %v", change)
			}
			if change.Type != watch.Deleted || !ending[pod.UID] {
				continue
			}
			delete(ending, pod.UID)
			ended := pod.Status.ContainerStatuses[0].State.Terminated
			if ended == nil {
				t.Fatalf("%s is deleted before it has ended", pod.Name)
			}
			for _, event := range warnings(t, pod.UID) {
				if !before[event.ResourceVersion] && event.LastTimestamp.Before(&ended.FinishedAt) {
					t.Errorf("%s: %s: %s", pod.Name, event.Reason, event.Message)
				}
			}
		case <-deadline:
			t.Fatalf("%d replicas do not end", len(ending))
		}
	}
	awaitRollout(t)
}

// warnings are those about a Pod.
func warnings(t *testing.T, pod types.UID) []corev1.Event {
	t.Helper()
	list, err := client.CoreV1().Events(system).List(t.Context(), metav1.ListOptions{FieldSelector: "type=Warning,involvedObject.uid=" + string(pod)})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// A kubelet replaces the files of a ConfigMap through a symbolic link, and eventd reads them again.
func TestAConfigMapThatChangesIsReadAgain(t *testing.T) {
	install(t)
	changed := func() bool { return strings.Contains(kubectlEventd(t, "status", "--once"), "added_later") }
	if changed() {
		t.Fatal("it is there already")
	}
	kubectl(t, "apply", "-k", overlay{more: receivers + "        metrics: [{name: added_later, match: 'false'}]\n"}.write(t))
	await.Within(t, startTimeout, "the status shows the metric", changed)
}

// kubectlEventd returns what the plugin prints.
func kubectlEventd(t *testing.T, args ...string) string {
	t.Helper()
	out, err := command(t.Context(), "kubectl-eventd", args...).Output()
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
	if _, err := runKubectl(t, strings.NewReader(plainPods), "-n", "restricted", "create", "--dry-run=server", "-f", "-"); err == nil || !strings.Contains(err.Error(), "violates PodSecurity") {
		t.Errorf("Pods that say nothing of their rights: %v", err)
	}

	apply(t, plainPods)
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
		await.Within(t, startTimeout, "a client connects to "+deployment, func() bool { return connects(t, *plain, pod.Status.PodIP, "10280") })
		listen(t, pod, "8080")
		await.Within(t, startTimeout, deployment+" listens elsewhere", func() bool { return connects(t, pod, "127.0.0.1", "8080") })
		if connects(t, *plain, pod.Status.PodIP, "8080") {
			t.Errorf("a client connects to any port of %s", deployment)
		}
	}
}

const plainPods = `
apiVersion: v1
kind: Pod
metadata: {name: server}
spec:
  containers: [{name: server, image: "busybox:1.35", command: [httpd, -f, -p, "8080"]}]
---
apiVersion: v1
kind: Pod
metadata: {name: client}
spec:
  containers: [{name: client, image: "busybox:1.35", command: [sleep, "36000"]}]
`

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
	_, err := ofPod(t, pod, "true", fmt.Sprintf("nsenter --target $p --net %s/deb/usr/bin/busybox %s", *parts, command))
	return err
}
