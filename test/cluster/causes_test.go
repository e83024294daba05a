package cluster

import (
	"encoding/base64"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/eventd/eventd/test/await"
	"github.com/eventd/eventd/test/upgrade"
)

// exhaustMemory lets the leader's container have hardly more memory than it has.
func exhaustMemory(t *testing.T, leader corev1.Pod) {
	inContainer(t, leader, `if [ -e /sys/fs/cgroup/memory ]; then
			c=/sys/fs/cgroup/memory$(sed -n 's/.*:memory://p' /proc/$p/cgroup) used=memory.usage_in_bytes limit=memory.limit_in_bytes
		else
			c=/sys/fs/cgroup$(sed -n 's/^0:://p' /proc/$p/cgroup) used=memory.current limit=memory.max
		fi
		echo $(($(cat $c/$used) + 1048576)) >$c/$limit`)
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
	awaitCondition(t, dies, corev1.NodeReady, true)
}

// exhaustNode fills the memory of the leader's node, until its kubelet has seen that. It may then end all Pods but those of
// a critical priority, such as eventd.
func exhaustNode(t *testing.T, leader corev1.Pod) {
	name, file := leader.Spec.NodeName, "/run/filled"
	node(t, name, "exec", "sh", "-c", `for procs in /sys/fs/cgroup/memory/cgroup.procs /sys/fs/cgroup/init/cgroup.procs; do
		if [ -e $procs ]; then echo $$ >$procs; fi; done
		dd if=/dev/zero of=`+file+` bs=1M count=`+strconv.Itoa(nodeMemory>>10)+` 2>/dev/null`)
	awaitCondition(t, name, corev1.NodeMemoryPressure, true)
	node(t, name, "exec", "rm", file)
	awaitCondition(t, name, corev1.NodeMemoryPressure, false)
}

// goBack installs the previous release, by its manifests, and then this one, by its own.
func goBack(t *testing.T, _ corev1.Pod) {
	kubectl(t, "apply", "-k", overlay{deploy: previousDeploy, tag: upgrade.Version, more: receivers}.write(t))
	awaitRollout(t)
	install(t)
}

// differ has eventd run from an image whose clock is ahead on one node, and each node lead once.
func differ(t *testing.T, _ corev1.Pod) {
	kubectl(t, "apply", "-k", overlay{tag: aheadTag, more: receivers + `
- target: {kind: Deployment, name: eventd-.*}
  patch: |-
    - {op: add, path: /spec/template/spec/containers/0/env/-, value: {name: NODE_NAME, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}}
`}.write(t))
	awaitRollout(t)
	led := map[string]bool{}
	for range 2 {
		led[mustLead(t, intake).Spec.NodeName] = true
		kubectl(t, "-n", system, "delete", "pod", mustLead(t, intake).Name, mustLead(t, observe).Name)
		awaitRollout(t)
	}
	if len(led) != 2 {
		t.Errorf("only %v has led", led)
	}
	install(t)
}

// outliveTokens gives eventd tokens of 10 minutes, as its client has, and returns when those of its Pods have expired.
func outliveTokens(t *testing.T, _ corev1.Pod) {
	kubectl(t, "apply", "-k", overlay{more: receivers + shortTokens}.write(t))
	awaitRollout(t)
	leaders := []corev1.Pod{mustLead(t, intake), mustLead(t, observe)}
	expiry := max(expiryOf(t, leaders[0]), expiryOf(t, leaders[1]))
	await.Within(t, 15*time.Minute, "the first tokens have expired", func() bool { return time.Now().Unix() > expiry })
	for _, pod := range leaders {
		if expiryOf(t, pod) <= expiry {
			t.Errorf("%s still has its first token", pod.Name)
		}
	}
	// Both still renew their Leases, and answer.
	if now := mustLead(t, intake); now.Name != leaders[0].Name {
		t.Errorf("%s leads the intake, and %s did", now.Name, leaders[0].Name)
	}
	if now := mustLead(t, observe); now.Name != leaders[1].Name {
		t.Errorf("%s leads observe, and %s did", now.Name, leaders[1].Name)
	}
	install(t)
}

// expiryOf returns when the token expires that a Pod has now, in seconds since 1970.
func expiryOf(t *testing.T, pod corev1.Pod) int64 {
	t.Helper()
	token := inContainer(t, pod, "cat /proc/$p/root/var/run/secrets/kubernetes.io/serviceaccount/token")
	_, rest, _ := strings.Cut(token, ".")
	encoded, _, _ := strings.Cut(rest, ".")
	claims, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil {
		t.Fatal(err)
	}
	return decode[struct{ Exp int64 }](t, string(claims)).Exp
}

// shortTokens replaces the volume that a kubelet makes by default, and shortens the life of the token for other replicas.
const shortTokens = `
- target: {kind: Deployment, name: eventd-.*}
  patch: |-
    apiVersion: apps/v1
    kind: Deployment
    metadata: {name: any}
    spec:
      template:
        spec:
          automountServiceAccountToken: false
          containers:
            - name: eventd
              volumeMounts: [{name: account, mountPath: /var/run/secrets/kubernetes.io/serviceaccount, readOnly: true}]
          volumes:
            - name: peer-token
              projected: {sources: [{serviceAccountToken: {audience: eventd, path: token, expirationSeconds: 600}}]}
            - name: account
              projected:
                sources:
                  - serviceAccountToken: {path: token, expirationSeconds: 600}
                  - configMap: {name: kube-root-ca.crt, items: [{key: ca.crt, path: ca.crt}]}
`
