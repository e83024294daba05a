package cluster

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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
	// often says in which runs it happens.
	often occasion
	// mayLose is how many occurrences may be lost, since all replicas that held them end at once.
	mayLose int
}

// occasion is when a disturbance happens.
type occasion int

const (
	everyTurn occasion = iota
	// inShort is also in the short run.
	inShort
	// inFirstTurn is in one turn only, since it takes more than ten minutes.
	inFirstTurn
)

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
	}, handover, inShort, 0},
	{"the leader is killed, and its container started again", func(t *testing.T, leader corev1.Pod) {
		inContainer(t, leader, "kill -KILL $p")
		awaitRestart(t, leader, "Error")
	}, handover, inShort, 0},
	{"a rollout", func(t *testing.T, _ corev1.Pod) {
		kubectl(t, "-n", system, "rollout", "restart", "deployment/"+intake)
		kubectl(t, "-n", system, "rollout", "status", "--timeout=180s", "deployment/"+intake)
	}, handover, inShort, 0},
	{"the leader's node is drained", func(t *testing.T, leader corev1.Pod) {
		drain(t, leader.Spec.NodeName)
		kubectl(t, "uncordon", leader.Spec.NodeName)
	}, handover, everyTurn, 0},
	{"the kube-apiserver and etcd are killed, and start again", func(t *testing.T, _ corev1.Pod) {
		node(t, "control-plane", "kill")
		await.Within(t, startTimeout, "the kube-apiserver is ready", func() bool {
			_, err := tryKubectl(t, "get", "--raw", "/readyz")
			return err == nil
		})
	}, lostNode, everyTurn, 0},
	{"the leader takes more memory than its limit", exhaustMemory, crash, everyTurn, 0},
	{"the leader's node is short of memory", exhaustNode, handover, everyTurn, 0},
	{"the disk of the leader's node is full", fillDisk, lostNode, everyTurn, 0},
	{"the leader's node loses its power", func(t *testing.T, leader corev1.Pod) {
		node(t, leader.Spec.NodeName, "off")
		awaitCondition(t, leader.Spec.NodeName, corev1.NodeReady, false)
		node(t, leader.Spec.NodeName, "on")
		awaitCondition(t, leader.Spec.NodeName, corev1.NodeReady, true)
	}, lostNode, everyTurn, 0},
	{"the leader's node is cut off for 30 s", func(t *testing.T, leader corev1.Pod) {
		node(t, leader.Spec.NodeName, "disconnect")
		if err := await.Sleep(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
		node(t, leader.Spec.NodeName, "connect")
	}, lostNode, everyTurn, 0},
	{"the nodes do not reach each other's Pods for 30 s", func(t *testing.T, leader corev1.Pod) {
		name := leader.Spec.NodeName
		number := strings.TrimPrefix(other(name), "node-")
		route := func(args ...string) { node(t, append([]string{name, "exec", "ip", "route", "replace"}, args...)...) }
		route("blackhole", "10.244."+number+".0/24")
		if err := await.Sleep(t.Context(), 30*time.Second); err != nil {
			t.Fatal(err)
		}
		node(t, name, "exec", "ip", "route", "del", "blackhole", "10.244."+number+".0/24")
		route("10.244."+number+".0/24", "via", "10.99.0.1"+number)
	}, lostNode, everyTurn, 0},
	{"both replicas are on the node that loses its power", bothOnOneNode, lostNode + time.Minute, everyTurn, 50}, // of a second
	{"the previous release is installed, and then this one again", goBack, handover, everyTurn, 0},
	{"the clock of eventd is 5 minutes ahead on one node, and leaders change", differ, handover, everyTurn, 0},
	{"the tokens of eventd and its client expire", outliveTokens, handover, inFirstTurn, 0},
}

// outcome is what a disturbance has cost.
type outcome struct {
	disturbance  string
	posted, kept int
	failed       int
	longest      time.Duration
}

// result is what a poster prints.
type result struct {
	Posted, Accepted int
	Failed           map[string]int
	Longest, Slowest float64
}

// resultOf is the last line of a poster.
func resultOf(t *testing.T, logs string) result {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(logs), "\n")
	return decode[result](t, lines[len(lines)-1])
}

// Whatever happens to replicas, nodes and the kube-apiserver: what was accepted is stored, once, and a client that
// repeats what was not accepted loses nothing.
func TestNothingIsLostThroughDisturbances(t *testing.T) {
	install(t)
	apply(t, posterRights("load"))
	copyAuthority(t, "load")
	var outcomes []outcome
	for i, d := range disturbances {
		for turn := range d.turns() {
			t.Run(strings.ReplaceAll(d.name, " ", "_"), func(t *testing.T) {
				outcomes = append(outcomes, d.run(t, fmt.Sprintf("run-%d-%d", i, turn)))
			})
		}
	}
	writeTable(t, "disturbances", outcomesTable(t, outcomes))
}

// turns returns how often it happens.
func (d disturbance) turns() int {
	switch {
	case *turns == 0:
		return map[bool]int{true: 1}[d.often == inShort]
	case d.often == inFirstTurn:
		return 1
	default:
		return *turns
	}
}

// run returns after the Pod that posts has ended.
func (d disturbance) run(t *testing.T, name string) outcome {
	awaitRollout(t)
	replaceRestarted(t)
	leads := mustLead(t, intake)
	from := other(leads.Spec.NodeName)
	apply(t, posterPod("load", name, from, "poster", "-run="+name, "-namespace=load", "-rate=50", "-duration=20m"))
	kubectl(t, "-n", "load", "wait", "--for=condition=Ready", "--timeout=180s", "pod/"+name)
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
	// The command may end with the container.
	if _, err := tryKubectl(t, "-n", "load", "exec", name, "--", "/poster", "-stop"); err != nil && !strings.Contains(err.Error(), "137") {
		t.Fatal(err)
	}
	r := resultOf(t, <-logs)
	kubectl(t, "-n", "load", "delete", "pod", name)
	o := outcome{d.name, r.Posted, 0, 0, time.Duration(r.Longest * float64(time.Second)).Round(100 * time.Millisecond)}
	for _, n := range r.Failed {
		o.failed += n
	}
	_ = await.Success(t.Context(), startTimeout, func() error {
		if o.kept = storedOf(t, name); o.kept < r.Posted {
			return errors.New("not all is stored yet")
		}
		return nil
	})
	t.Logf("%s: posted %d, stored %d, failed attempts %v, nothing accepted for %s, slowest %.1f s", d.name, r.Posted, o.kept, r.Failed, o.longest, r.Slowest)
	if r.Accepted != r.Posted || o.kept > r.Posted || o.kept < r.Posted-d.mayLose {
		t.Errorf("of %d posted, %d were accepted, and %d are stored", r.Posted, r.Accepted, o.kept)
	}
	if *turns > 0 && o.longest > d.longest { // a busy machine takes longer, and loses nothing
		t.Errorf("nothing was accepted for %s, and not more than %s", o.longest, d.longest)
	}
	return o
}

// replaceRestarted replaces Pods whose container was started again: a kubelet would wait before it does so once more.
func replaceRestarted(t *testing.T) {
	t.Helper()
	for _, pod := range podsOf(t, intake) {
		if pod.Status.ContainerStatuses[0].RestartCount > 0 {
			kubectl(t, "-n", system, "delete", "pod", pod.Name)
			awaitRollout(t)
		}
	}
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

func drain(t *testing.T, name string) {
	t.Helper()
	kubectl(t, "drain", name, "--ignore-daemonsets", "--delete-emptydir-data", "--force", "--timeout=180s")
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
		if err != nil || published.Data["ca.crt"] == "" {
			return false
		}
		copied := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: published.Name}, Data: published.Data}
		_, err = client.CoreV1().ConfigMaps(namespace).Create(t.Context(), copied, metav1.CreateOptions{})
		return err == nil || apierrors.IsAlreadyExists(err)
	})
}

// posterRights are a namespace, an account in it, and what a recorder may do there.
func posterRights(namespace string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Namespace
metadata: {name: %[1]s}
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: poster, namespace: %[1]s}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: poster, namespace: %[1]s}
rules: [{apiGroups: [""], resources: [events], verbs: [create, patch]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: poster, namespace: %[1]s}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: poster}
subjects: [{kind: ServiceAccount, name: poster, namespace: %[1]s}]
`, namespace)
}

// posterPod is a Pod whose token expires after 10 minutes, which is the least.
func posterPod(namespace, name, node, account string, args ...string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Pod
metadata: {name: %[2]s, namespace: %[1]s}
spec:
  restartPolicy: Never
  nodeName: %[3]s
  serviceAccountName: %[4]s
  automountServiceAccountToken: false
  tolerations: [{operator: Exists}]
  containers:
    - name: poster
      image: %[5]s
      imagePullPolicy: Never
      args: [-certificate-authority=/etc/eventd-ca/ca.crt, "%[6]s"]
      volumeMounts: [{name: ca, mountPath: /etc/eventd-ca}, {name: token, mountPath: /var/run/secrets/kubernetes.io/serviceaccount}]
  volumes:
    - {name: ca, configMap: {name: eventd-serving-ca}}
    - name: token
      projected:
        sources:
          - serviceAccountToken: {path: token, expirationSeconds: 600}
          - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
`, namespace, name, node, account, posterImage, strings.Join(args, `", "`))
}

// outcomesTable has a row for each disturbance. A run of some leaves the rows of the others as they are.
func outcomesTable(t *testing.T, outcomes []outcome) []string {
	t.Helper()
	rows := []string{"| what happens | posted | stored | failed attempts | longest time in which nothing was accepted |", "|---|---|---|---|---|"}
	earlier := tableOf(t, "disturbances")
	for _, d := range disturbances {
		first := "| " + d.name + " |"
		var now []string
		for _, o := range outcomes {
			if o.disturbance == d.name {
				now = append(now, fmt.Sprintf("%s %d | %d | %d | %s |", first, o.posted, o.kept, o.failed, o.longest))
			}
		}
		if now == nil {
			now = slices.DeleteFunc(slices.Clone(earlier), func(row string) bool { return !strings.HasPrefix(row, first) })
		}
		rows = append(rows, now...)
	}
	return rows
}
