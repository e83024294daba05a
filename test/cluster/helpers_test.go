package cluster

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/test/await"
)

const (
	system          = metav1.NamespaceSystem
	intake, observe = "eventd-intake", "eventd-observe"
)

// leases of the Deployments.
var leases = map[string]string{intake: "eventd", observe: "eventd-observe"}

// kubectl returns the standard output of kubectl, which must succeed.
func kubectl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryKubectl(t, args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryKubectl(t *testing.T, args ...string) (string, error) { return runKubectl(t, nil, args...) }

// command is one of the parts, with the kubeconfig of the administrator, and with caches that end with the cluster.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(*parts, name), args...)
	c.Env = append(os.Environ(), "KUBECONFIG="+filepath.Join(dir, "admin.kubeconfig"), "KUBECACHEDIR="+filepath.Join(dir, "kube-cache"))
	return c
}

func runKubectl(t *testing.T, in io.Reader, args ...string) (string, error) {
	command := command(t.Context(), "kubectl", args...)
	var stderr bytes.Buffer
	command.Stdin, command.Stderr = in, &stderr
	out, err := command.Output()
	if err != nil {
		err = fmt.Errorf("kubectl %s: %w\n%s%s", strings.Join(args, " "), err, out, &stderr)
	}
	return string(out), err
}

// apply applies manifests.
func apply(t *testing.T, manifests string) {
	t.Helper()
	if _, err := runKubectl(t, strings.NewReader(manifests), "apply", "-f", "-"); err != nil {
		t.Fatal(err)
	}
}

// node has hack/cluster do something with a node, and returns its output.
func node(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryNode(t.Context(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tryNode(ctx context.Context, args ...string) (string, error) {
	out, err := exec.CommandContext(ctx, filepath.Join(*parts, "cluster"), append([]string{"node", "-dir", dir}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cluster node %q: %w\n%s", args, err, out)
	}
	return string(out), err
}

// decode decodes JSON of a command.
func decode[V any](t *testing.T, data string) V {
	t.Helper()
	var v V
	if err := json.Unmarshal([]byte(data), &v); err != nil {
		t.Fatalf("%v in %.200q", err, data)
	}
	return v
}

// overlay is a kustomization of the manifests.
type overlay struct {
	// deploy is their folder, and tag that of the image: those of this version, if they are empty.
	deploy, tag string
	// components are those beside flowcontrol.
	components []string
	// more is more of the file.
	more string
}

// write returns the folder of the kustomization, which is there until the end of the test.
func (o overlay) write(t *testing.T) string {
	t.Helper()
	folder := t.TempDir()
	deploy, err := filepath.Abs(cmp.Or(o.deploy, "../../deploy"))
	if err != nil {
		t.Fatal(err)
	}
	if deploy, err = filepath.Rel(folder, deploy); err != nil { // of folders, kustomize takes only relative paths
		t.Fatal(err)
	}
	components := []string{deploy + "/flowcontrol"}
	for _, name := range o.components {
		components = append(components, deploy+"/"+name)
	}
	content := fmt.Sprintf(`apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [%[1]s]
components: [%[3]s]
images: [{name: eventd, newName: %[2]s, newTag: %[4]q}]
%[5]s`, deploy, eventdImage, strings.Join(components, ", "), cmp.Or(o.tag, *tag), o.more)
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return folder
}

// receiverList has observe write Events to standard output, and send them to a collector.
const receiverList = `- {name: lines, from: Oldest, jsonLines: {}}
- {name: collector, from: Oldest, otlp: {endpoint: "http://collector.eventd-collector:4318/v1/logs", protocol: http, insecure: true}}`

// receivers is the part of a kustomization for that. The DNS Pods of hack/cluster listen at the port 1053.
var receivers = `patches:
- target: {kind: NetworkPolicy, name: eventd-observe}
  patch: |-
    - {op: add, path: /spec/egress/-, value: {ports: [{port: 1053, protocol: UDP}, {port: 1053, protocol: TCP}]}}
- target: {kind: ConfigMap, name: eventd-observe-configuration}
  patch: |-
    - op: replace
      path: /data/configuration.yaml
      value: |
        apiVersion: config.eventd.io/v1alpha1
        kind: EventdConfiguration
        receivers:
        ` + strings.ReplaceAll(receiverList, "\n", "\n        ") + "\n"

// install installs eventd, or brings it back to how it was installed, and waits until it is in good order.
func install(t *testing.T) {
	t.Helper()
	kubectl(t, "apply", "-k", overlay{more: receivers}.write(t))
	awaitRollout(t)
}

// awaitRollout waits until all replicas are of the present version and ready, none is ending, and both roles have a leader.
func awaitRollout(t *testing.T) {
	t.Helper()
	for _, deployment := range []string{intake, observe} {
		kubectl(t, "-n", system, "rollout", "status", "--timeout=180s", "deployment/"+deployment)
		await.Within(t, startTimeout, "two replicas of "+deployment+", of which one leads", func() bool {
			pods := podsOf(t, deployment)
			_, leads := leader(t, deployment)
			return len(pods) == 2 && leads
		})
	}
}

// podsOf returns the Pods of a Deployment.
func podsOf(t *testing.T, deployment string) []corev1.Pod {
	t.Helper()
	list, err := client.CoreV1().Pods(system).List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/component=" + strings.TrimPrefix(deployment, "eventd-")})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}

// leader returns the Pod that holds a Lease, if there is one.
func leader(t *testing.T, deployment string) (corev1.Pod, bool) {
	t.Helper()
	lease, err := client.CoordinationV1().Leases(system).Get(t.Context(), leases[deployment], metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity == nil {
		return corev1.Pod{}, false
	}
	name, _, _ := strings.Cut(*lease.Spec.HolderIdentity, "_")
	for _, pod := range podsOf(t, deployment) {
		if pod.Name == name {
			return pod, true
		}
	}
	return corev1.Pod{}, false
}

// mustLead returns the Pod that leads.
func mustLead(t *testing.T, deployment string) corev1.Pod {
	t.Helper()
	pod, ok := leader(t, deployment)
	if !ok {
		t.Fatalf("no Pod of %s leads", deployment)
	}
	return pod
}

// nodesOf returns the nodes of a Deployment's Pods that are not ending, in order.
func nodesOf(t *testing.T, deployment string) (nodes []string) {
	t.Helper()
	for _, pod := range podsOf(t, deployment) {
		if pod.DeletionTimestamp == nil {
			nodes = append(nodes, pod.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// other returns the other node.
func other(name string) string {
	return map[string]string{"node-1": "node-2", "node-2": "node-1"}[name]
}

// inContainer runs commands of a shell on a Pod's node, in which $p is the process of its eventd, and returns their output.
func inContainer(t *testing.T, pod corev1.Pod, script string) string {
	t.Helper()
	out, err := ofPod(t, pod, `grep -qx eventd /proc/$p/comm`, script)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// ofPod runs commands of a shell on a Pod's node, in which $p is a process of the Pod for which a condition holds.
func ofPod(t *testing.T, pod corev1.Pod, condition, script string) (string, error) {
	t.Helper()
	return tryNode(t.Context(), pod.Spec.NodeName, "exec", "sh", "-c",
		fmt.Sprintf(`for p in $(ls /proc | grep '^[0-9]'); do if grep -q %s /proc/$p/cgroup 2>/dev/null && %s; then %s; exit; fi; done; exit 9`, pod.UID, condition, script))
}

// awaitRestart waits until the container of a Pod was started again, after it has ended for a reason.
func awaitRestart(t *testing.T, former corev1.Pod, reason string) {
	t.Helper()
	await.Within(t, startTimeout, former.Name+" is started again", func() bool {
		pod, err := client.CoreV1().Pods(system).Get(t.Context(), former.Name, metav1.GetOptions{})
		if err != nil || len(pod.Status.ContainerStatuses) == 0 {
			return false
		}
		status, before := pod.Status.ContainerStatuses[0], former.Status.ContainerStatuses[0]
		if status.RestartCount == before.RestartCount || status.State.Running == nil {
			return false
		}
		if ended := status.LastTerminationState.Terminated; ended == nil || ended.Reason != reason {
			t.Fatalf("it has ended for %+v, not for %s", ended, reason)
		}
		return true
	})
}

// awaitCondition waits until a node is seen to have a condition, or not to have it.
func awaitCondition(t *testing.T, name string, kind corev1.NodeConditionType, want bool) {
	t.Helper()
	await.Within(t, startTimeout, fmt.Sprintf("%s of %s: %t", kind, name, want), func() bool {
		n, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
		if err != nil {
			return false
		}
		for _, condition := range n.Status.Conditions {
			if condition.Type == kind {
				return want == (condition.Status == corev1.ConditionTrue)
			}
		}
		return false
	})
}

// marks returns the page of -report before, between and after the marks of a table.
func marks(t *testing.T, name string) (before, table, after string) {
	t.Helper()
	page, err := os.ReadFile(*report)
	if err != nil {
		t.Fatal(err)
	}
	begins, ends := strings.Index(string(page), "<!-- "+name+": "), strings.Index(string(page), "<!-- end of "+name+" -->")
	if begins < 0 || ends < begins {
		t.Fatalf("%s has no marks of %s", *report, name)
	}
	begins += strings.Index(string(page[begins:]), "\n") + 1
	return string(page[:begins]), string(page[begins:ends]), string(page[ends:])
}

// tableOf returns the rows of a table in the page of -report, if there is one.
func tableOf(t *testing.T, name string) []string {
	t.Helper()
	if *report == "" {
		return nil
	}
	_, table, _ := marks(t, name)
	return strings.Split(strings.TrimSpace(table), "\n")
}

// writeTable replaces a table in the page of -report, if there is one.
func writeTable(t *testing.T, name string, rows []string) {
	t.Helper()
	if *report == "" {
		return
	}
	before, _, after := marks(t, name)
	if err := os.WriteFile(*report, []byte(before+strings.Join(rows, "\n")+"\n"+after), 0o644); err != nil {
		t.Fatal(err)
	}
}
