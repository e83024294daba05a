package cluster

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/stored"
)

// disturbance is something that happens while a Pod posts 50 Events per second, each about another object.
type disturbance struct {
	name string
	// cause causes it, and returns when the cluster is as before, but for eventd. The leader of the intake is not on
	// the node from which the Pod posts.
	cause func(t *testing.T, leader corev1.Pod)
	// longest is how long nothing may be accepted at most.
	longest time.Duration
	// short ones are in every run.
	short bool
}

const (
	// handover is what a planned change of the leader costs at most. A client repeats after 1 s what it sent too early.
	handover = 5 * time.Second
	// crash is the same for a crash: the lease, and what a client waits for before it repeats.
	crash = 15*time.Second + 10*time.Second
	// lostNode is the same for a node that does not answer. Its addresses are those of Services until the cluster has noticed
	// that, after 50 s, and a client of client-go notices after 45 s that its connection leads nowhere.
	lostNode = 2 * time.Minute
)

var disturbances = []disturbance{
	{"the leader's Pod is deleted", func(t *testing.T, leader corev1.Pod) {
		kubectl(t, "-n", system, "delete", "pod", leader.Name)
	}, handover, true},
	{"the leader is killed, and its container started again", func(t *testing.T, leader corev1.Pod) {
		inContainer(t, leader, "kill -KILL $p")
		awaitRestart(t, leader, "Error")
	}, handover, true},
	{"a rollout", func(t *testing.T, _ corev1.Pod) {
		kubectl(t, "-n", system, "rollout", "restart", "deployment/"+intake)
		kubectl(t, "-n", system, "rollout", "status", "--timeout=180s", "deployment/"+intake)
	}, handover, true},
	{"the leader's node is drained", func(t *testing.T, leader corev1.Pod) {
		drain(t, leader.Spec.NodeName)
		kubectl(t, "uncordon", leader.Spec.NodeName)
	}, handover, false},
	{"the kube-apiserver and etcd are killed, and start again", func(t *testing.T, _ corev1.Pod) {
		node(t, "control-plane", "kill")
		await.Within(t, startTimeout, "the kube-apiserver is ready", func() bool {
			_, err := tryKubectl(t, "get", "--raw", "/readyz")
			return err == nil
		})
	}, lostNode, false},
	{"the leader takes more memory than its limit", exhaustMemory, crash, false},
	{"the disk of the leader's node is full", fillDisk, lostNode, false},
	{"the leader's node loses its power", func(t *testing.T, leader corev1.Pod) {
		node(t, leader.Spec.NodeName, "off")
		awaitNode(t, leader.Spec.NodeName, false)
		node(t, leader.Spec.NodeName, "on")
		awaitNode(t, leader.Spec.NodeName, true)
	}, lostNode, false},
	{"the leader's node is cut off for 30 s", func(t *testing.T, leader corev1.Pod) {
		node(t, leader.Spec.NodeName, "disconnect")
		if err := await.Sleep(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
		node(t, leader.Spec.NodeName, "connect")
	}, lostNode, false},
	{"both replicas are on the node that loses its power", bothOnOneNode, lostNode + time.Minute, false},
}

// exhaustMemory lets the leader's container have hardly more memory than it has.
func exhaustMemory(t *testing.T, leader corev1.Pod) {
	inContainer(t, leader, `c=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/$p/cgroup)
		echo $(($(cat $c/memory.usage_in_bytes) + 1048576)) >$c/memory.limit_in_bytes`)
	awaitRestart(t, leader, "OOMKilled")
}

// fillDisk fills the disk of the leader's node, until its kubelet has seen that. The kubelet then ends Pods.
func fillDisk(t *testing.T, leader corev1.Pod) {
	name, file := leader.Spec.NodeName, "/var/lib/kubelet/filled"
	node(t, name, "exec", "sh", "-c", "dd if=/dev/zero of="+file+" bs=1M 2>/dev/null; test -s "+file)
	awaitCondition(t, name, corev1.NodeDiskPressure, true)
	node(t, name, "exec", "rm", file)
	awaitCondition(t, name, corev1.NodeDiskPressure, false)
}

// bothOnOneNode has both replicas on the leader's node, which is switched off.
func bothOnOneNode(t *testing.T, former corev1.Pod) {
	dies := former.Spec.NodeName
	kubectl(t, "cordon", other(dies))
	for _, pod := range podsOf(t, intake) {
		if pod.Spec.NodeName != dies {
			kubectl(t, "-n", system, "delete", "pod", pod.Name)
		}
	}
	await.Within(t, startTimeout, "both replicas run on "+dies, func() bool {
		return slices.Equal(nodesOf(t, intake), []string{dies, dies})
	})
	awaitRollout(t)
	kubectl(t, "uncordon", other(dies))
	node(t, dies, "off")
	await.Within(t, startTimeout, "a replica on "+other(dies)+" leads", func() bool {
		pod, ok := leader(t, intake)
		return ok && pod.Spec.NodeName == other(dies)
	})
	node(t, dies, "on")
	awaitNode(t, dies, true)
}

// outcome is what a disturbance has cost.
type outcome struct {
	disturbance  string
	posted, kept int
	failed       int
	longest      time.Duration
}

// Whatever happens to replicas, nodes and the kube-apiserver: what was accepted is stored, once, and a client that
// repeats what was not accepted loses nothing.
func TestNothingIsLostThroughDisturbances(t *testing.T) {
	install(t)
	apply(t, posterRights)
	copyAuthority(t, "load")
	var outcomes []outcome
	for _, d := range disturbances {
		if !d.short && *turns == 0 {
			continue
		}
		for turn := range max(*turns, 1) {
			t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
				outcomes = append(outcomes, d.run(t, fmt.Sprintf("%s-%d", initials(d.name), turn)))
			})
		}
	}
	if *report != "" {
		writeReport(t, outcomes)
	}
}

func initials(name string) string {
	var out strings.Builder
	for word := range strings.FieldsSeq(name) {
		out.WriteByte(strings.ToLower(word)[0])
	}
	return out.String()
}

// run returns after the Pod that posts has ended.
func (d disturbance) run(t *testing.T, name string) outcome {
	awaitRollout(t)
	leads := mustLead(t, intake)
	from := other(leads.Spec.NodeName)
	apply(t, fmt.Sprintf(posterPod, name, from, posterImage, name))
	kubectl(t, "-n", "load", "wait", "--for=condition=Ready", "--timeout=60s", "pod/"+name)
	awaitEvents(t, name, 50)
	d.cause(t, leads)
	awaitRollout(t)
	awaitEvents(t, name, storedOf(t, name)+100)
	// It prints what was answered when it gets SIGTERM.
	logs := make(chan string, 1)
	go func() {
		out, err := tryKubectl(t, "-n", "load", "logs", "--follow", name)
		if err != nil {
			out = err.Error()
		}
		logs <- out
	}()
	kubectl(t, "-n", "load", "exec", name, "--", "/poster", "-stop")
	lines := strings.Split(strings.TrimSpace(<-logs), "\n")
	type result struct {
		Posted, Accepted int
		Failed           map[string]int
		Longest, Slowest float64
	}
	r := decode[result](t, lines[len(lines)-1])
	kubectl(t, "-n", "load", "delete", "pod", name)
	o := outcome{d.name, r.Posted, 0, 0, time.Duration(r.Longest * float64(time.Second)).Round(100 * time.Millisecond)}
	for _, n := range r.Failed {
		o.failed += n
	}
	await.Within(t, time.Minute, "all that was accepted is stored", func() bool { return storedOf(t, name) >= r.Posted })
	o.kept = storedOf(t, name)
	t.Logf("%s: posted %d, stored %d, failed attempts %v, nothing accepted for %s, slowest %.1f s", d.name, r.Posted, o.kept, r.Failed, o.longest, r.Slowest)
	if r.Accepted != r.Posted || o.kept != r.Posted {
		t.Errorf("of %d posted, %d were accepted, and %d are stored", r.Posted, r.Accepted, o.kept)
	}
	if *turns > 0 && o.longest > d.longest { // a busy machine takes longer, and loses nothing
		t.Errorf("nothing was accepted for %s, and not more than %s", o.longest, d.longest)
	}
	return o
}

// storedOf returns how many occurrences of a run are stored.
func storedOf(t *testing.T, run string) (count int) {
	t.Helper()
	list, err := client.CoreV1().Events("load").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + run})
	if err != nil {
		return 0 // the kube-apiserver is away
	}
	for _, event := range list.Items {
		count += int(stored.Count(&event))
	}
	return count
}

func awaitEvents(t *testing.T, run string, atLeast int) {
	t.Helper()
	await.Within(t, startTimeout, fmt.Sprintf("%d Events of %s are stored", atLeast, run), func() bool { return storedOf(t, run) >= atLeast })
}

// copyAuthority copies the CA of the Service to the namespace of its clients.
func copyAuthority(t *testing.T, namespace string) {
	t.Helper()
	await.Within(t, startTimeout, "the CA is published", func() bool {
		published, err := client.CoreV1().ConfigMaps(system).Get(t.Context(), "eventd-serving-ca", metav1.GetOptions{})
		if err != nil {
			return false
		}
		copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: published.Name}, Data: published.Data}
		_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), copied, metav1.CreateOptions{})
		return err == nil
	})
}

const posterRights = `
apiVersion: v1
kind: Namespace
metadata: {name: load}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: poster, namespace: load}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: poster, namespace: load}
rules: [{apiGroups: [""], resources: [events], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: poster, namespace: load}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: poster}
subjects: [{kind: ServiceAccount, name: poster, namespace: load}]
`

const posterPod = `
apiVersion: v1
kind: Pod
metadata: {name: %s, namespace: load}
spec:
  restartPolicy: Never
  nodeName: %s
  serviceAccountName: poster
  tolerations: [{operator: Exists}]
  containers:
    - name: poster
      image: %s
      imagePullPolicy: Never
      args: [-run=%s, -namespace=load, -certificate-authority=/etc/eventd-ca/ca.crt, -rate=50, -duration=20m]
      volumeMounts: [{name: ca, mountPath: /etc/eventd-ca}]
  volumes: [{name: ca, configMap: {name: eventd-serving-ca}}]
`

// writeReport replaces the table at the end of a page.
func writeReport(t *testing.T, outcomes []outcome) {
	t.Helper()
	page, err := os.ReadFile(*report)
	if err != nil {
		t.Fatal(err)
	}
	const header = "| what happens |"
	text, _, _ := bytes.Cut(page, []byte(header))
	out := bytes.NewBuffer(text)
	fmt.Fprintln(out, header+" posted | stored | failed attempts | longest time without an answer 2xx |")
	fmt.Fprintln(out, "|---|---|---|---|---|")
	for _, o := range outcomes {
		fmt.Fprintf(out, "| %s | %d | %d | %d | %s |\n", o.disturbance, o.posted, o.kept, o.failed, o.longest)
	}
	if err := os.WriteFile(*report, out.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}
