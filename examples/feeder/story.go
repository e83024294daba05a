package main

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
)

// happening is one thing that happens, as its reporter puts it. It is reported
// in the new style if it has an action.
type happening struct {
	by        corev1.EventSource
	object    *corev1.ObjectReference
	eventtype string
	reason    string
	action    string
	note      string
}

// podsAtOnce is how many Pods something happens to in turn.
const podsAtOnce = 12

// story is the life of a small cluster. It never ends, and never runs out of
// Pods: one that has nothing left to happen to it makes room for a new one.
type story struct {
	namespace string
	random    *rand.Rand
	ahead     [][]happening // per Pod, what is still to happen
}

func newStory(namespace string, random *rand.Rand) *story {
	return &story{namespace: namespace, random: random}
}

func (s *story) next() happening {
	if len(s.ahead) < podsAtOnce {
		s.ahead = append(s.ahead, s.podLife())
	}
	i := s.random.IntN(len(s.ahead))
	happens := s.ahead[i][0]
	if s.ahead[i] = s.ahead[i][1:]; len(s.ahead[i]) == 0 {
		s.ahead[i] = s.ahead[len(s.ahead)-1]
		s.ahead = s.ahead[:len(s.ahead)-1]
	}
	return happens
}

// podLife is all that happens to a new Pod.
func (s *story) podLife() []happening {
	p := s.newPod()
	life := []happening{
		p.byController("deployment-controller", p.deployment, "ScalingReplicaSet", "Scaled up replica set %s to 3", p.replicaSet.Name),
		p.byController("replicaset-controller", p.replicaSet, "SuccessfulCreate", "Created pod: %s", p.pod.Name),
	}
	switch s.random.IntN(8) {
	case 0:
		return append(life, p.imageMissing(s.random.IntN(20))...)
	case 1, 2:
		return append(life, p.crashing(s.random.IntN(60))...)
	case 3:
		life = append(life, p.unschedulable()...)
	}
	return append(life, p.healthy(s.random.IntN(12))...)
}

// pod is what the reports about one Pod have in common.
type pod struct {
	deployment, replicaSet, pod, container *corev1.ObjectReference
	node, image                            string
	random                                 *rand.Rand
}

func (s *story) newPod() *pod {
	app := []string{"web", "cart", "checkout", "search", "mailer"}[s.random.IntN(5)]
	set := fmt.Sprintf("%s-%s", app, s.suffix(9))
	reference := func(apiVersion, kind, name string) *corev1.ObjectReference {
		return &corev1.ObjectReference{
			APIVersion: apiVersion, Kind: kind, Namespace: s.namespace, Name: name, UID: uuid.NewUUID(),
		}
	}
	p := &pod{
		deployment: reference("apps/v1", "Deployment", app),
		replicaSet: reference("apps/v1", "ReplicaSet", set),
		pod:        reference("v1", "Pod", set+"-"+s.suffix(5)),
		node:       fmt.Sprintf("node-%d", 1+s.random.IntN(3)),
		image:      fmt.Sprintf("registry.example/shop/%s:1.%d.0", app, s.random.IntN(9)),
		random:     s.random,
	}
	p.container = p.pod.DeepCopy()
	p.container.FieldPath = fmt.Sprintf("spec.containers{%s}", app)
	return p
}

// suffix is what Kubernetes puts behind a generated name: neither vowels nor
// digits that look like one.
func (s *story) suffix(length int) string {
	const letters = "bcdfghjklmnpqrstvwxz2456789"
	suffix := make([]byte, length)
	for i := range suffix {
		suffix[i] = letters[s.random.IntN(len(letters))]
	}
	return string(suffix)
}

func (p *pod) unschedulable() []happening {
	failed := p.byScheduler(corev1.EventTypeWarning, "FailedScheduling", "Scheduling",
		"0/3 nodes are available: 3 Insufficient memory. preemption: 0/3 nodes are available: 3 No preemption victims found for incoming pod.")
	return []happening{failed, failed}
}

func (p *pod) healthy(probes int) []happening {
	life := []happening{
		p.scheduled(),
		p.byKubelet(corev1.EventTypeNormal, "Pulling", "Pulling image %q", p.image),
		p.byKubelet(corev1.EventTypeNormal, "Pulled", "Successfully pulled image %q in %dms", p.image, 300+p.random.IntN(3000)),
		p.byKubelet(corev1.EventTypeNormal, "Created", "Container created"),
		p.byKubelet(corev1.EventTypeNormal, "Started", "Container started"),
	}
	for range probes {
		life = append(life, p.byKubelet(corev1.EventTypeWarning, "Unhealthy", "Readiness probe failed: HTTP probe failed with statuscode: 503"))
	}
	return append(life, p.byKubelet(corev1.EventTypeNormal, "Killing", "Stopping container"))
}

func (p *pod) crashing(restarts int) []happening {
	life := []happening{
		p.scheduled(),
		p.byKubelet(corev1.EventTypeNormal, "Pulled", "Container image %q already present on machine", p.image),
		p.byKubelet(corev1.EventTypeNormal, "Created", "Container created"),
		p.byKubelet(corev1.EventTypeNormal, "Started", "Container started"),
	}
	for range restarts {
		life = append(life, p.byKubelet(corev1.EventTypeWarning, "BackOff", "Back-off restarting failed container in pod %s_%s(%s)", p.pod.Name, p.pod.Namespace, p.pod.UID))
	}
	return life
}

func (p *pod) imageMissing(tries int) []happening {
	life := []happening{
		p.scheduled(),
		p.byKubelet(corev1.EventTypeNormal, "Pulling", "Pulling image %q", p.image),
		p.byKubelet(corev1.EventTypeWarning, "Failed", "Failed to pull image %q: not found", p.image),
	}
	for range tries {
		life = append(life,
			p.byKubelet(corev1.EventTypeNormal, "BackOff", "Back-off pulling image %q", p.image),
			p.byKubelet(corev1.EventTypeWarning, "Failed", "Error: ImagePullBackOff"))
	}
	return life
}

func (p *pod) scheduled() happening {
	return p.byScheduler(corev1.EventTypeNormal, "Scheduled", "Binding", "Successfully assigned %s/%s to %s", p.pod.Namespace, p.pod.Name, p.node)
}

func (p *pod) byScheduler(eventtype, reason, action, note string, args ...any) happening {
	return happening{
		by: corev1.EventSource{Component: "default-scheduler"}, object: p.pod,
		eventtype: eventtype, reason: reason, action: action, note: fmt.Sprintf(note, args...),
	}
}

func (p *pod) byKubelet(eventtype, reason, note string, args ...any) happening {
	return happening{
		by: corev1.EventSource{Component: "kubelet", Host: p.node}, object: p.container,
		eventtype: eventtype, reason: reason, note: fmt.Sprintf(note, args...),
	}
}

func (p *pod) byController(controller string, object *corev1.ObjectReference, reason, note string, args ...any) happening {
	return happening{
		by: corev1.EventSource{Component: controller}, object: object,
		eventtype: corev1.EventTypeNormal, reason: reason, note: fmt.Sprintf(note, args...),
	}
}
